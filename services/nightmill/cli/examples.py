"""What stands below a verb's options: commands as they are typed, and how the verb ends. Tests parse each of them."""

_ENDS = (
    "Ends with 0: published; 2: refused, nothing was started; 3: held, a person must decide; 4: cancelled;"
    " 5: not running; 130: Ctrl-C, and the job goes on."
)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": ("nightmill up --detach", "nightmill up --detach --config my-config --home /data/nightmill"),
    "down": ("nightmill down",),
    "ps": ("nightmill ps",),
    "logs": ("nightmill logs provider_gateway --follow", "nightmill logs supervisor -n 20"),
    "doctor": ("nightmill doctor --config my-config", "nightmill doctor --kafka broker.example:9092"),
    "service": ("NIGHTMILL_KAFKA=broker.example:9092 nightmill service planner",),
    "provider-simulator": (
        "nightmill provider-simulator",
        "nightmill provider-simulator --port 0 --scenario scenario.yaml --clock-speed 3600",
    ),
    "run": (
        "nightmill run licence-audit --input distributions",
        "nightmill run ./classify --input tickets.jsonl --limit 100 --budget-usd 0.50",
    ),
    "estimate": ("nightmill estimate ./classify --input tickets.jsonl",),
    "status": ("nightmill status", "nightmill status last --watch"),
    "cancel": ('nightmill cancel last --reason "wrong file"',),
    "resume": ("nightmill resume last",),
    "approve": ('nightmill approve last --reason "looked at it"',),
    "explain": ("nightmill explain t3", "nightmill explain aiohttp=="),
    "results": (
        "nightmill results licence-audit --format csv",
        "nightmill results last --staged",
        "nightmill results classify-tickets --format parquet > results.parquet",
    ),
    "cost": ("nightmill cost last --by cause",),
    "versions": ("nightmill versions licence-audit",),
    "sql": (
        'nightmill sql "SHOW TABLES"',
        'nightmill sql "SELECT outcome, count() AS n FROM items GROUP BY outcome"',
    ),
    "pool add": (
        "nightmill pool add haiku --provider anthropic --base-url https://api.anthropic.com/v1"
        " --model claude-haiku-5-5 --context-tokens 200000 --key-env ANTHROPIC_API_KEY --config my-config",
    ),
    "pool list": ("nightmill pool list --config my-config",),
    "pool check": ("nightmill pool check openai-mini --call",),
}
_NOTES = {"run": _ENDS, "status": "With --watch: " + _ENDS[0].lower() + _ENDS[1:]}


def epilog(verb: str) -> str:
    """The text below the options of a verb; its first paragraph is printed line by line."""
    commands = "\n".join(f"  {command}" for command in EXAMPLES[verb])
    note = _NOTES.get(verb)
    return f"\b\nFor example:\n{commands}" + (f"\n\n{note}" if note else "")
