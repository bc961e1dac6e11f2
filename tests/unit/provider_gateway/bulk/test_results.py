"""Result files: every request finds its line, whatever the file looks like around it (E6)."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.provider_gateway.adapters.openai_batches import OpenAiBatches
from nightmill.provider_gateway.bulk.fetching import line_at
from nightmill.provider_gateway.bulk.results import MOST_LINE_BYTES, Sorting, sort_lines

READ = OpenAiBatches().read


def row(ident: str, status: int = 200, text: str = "") -> bytes:
    body = {"choices": [{"message": {"content": text}}]}
    response = {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"custom_id": ident, "response": response, "error": None}, ensure_ascii=False).encode()


def sort(folder: Path, wanted: list[str], *files: bytes) -> tuple[Sorting, list[bytes | None]]:
    paths = [folder / f"{number}.jsonl" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    found = sort_lines(paths, {ident: n for n, ident in enumerate(wanted)}, READ, folder / "strange" / "x")
    lines: list[bytes | None] = []
    for position in range(len(wanted)):
        place = found.places.get(position)
        if place is None:
            lines.append(None)
        else:
            with paths[place[0]].open("rb") as file:
                lines.append(line_at(file, place))
    return found, lines


@settings(max_examples=40, deadline=None)
@given(
    st.permutations([f"k{n}" for n in range(8)]),
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r\n \r\n"]),
    st.booleans(),
    st.booleans(),
    st.text(alphabet=st.sampled_from("a\u2028\u2029\x85\x0b\x0c\u00e9"), max_size=12),
)
def test_every_line_is_found_in_any_order_and_dress(
    order: list[str], end: bytes, bom: bool, last_end: bool, text: str
) -> None:
    """U+2028 and its like are inside answers; only a newline byte ends a line."""
    rows = {ident: row(ident, text=text) for ident in order}
    content = (b"\xef\xbb\xbf" if bom else b"") + end.join(rows[ident] for ident in order) + (end if last_end else b"")
    with TemporaryDirectory() as folder:
        found, lines = sort(Path(folder), order, content)
    assert lines == [rows[ident] for ident in order]
    assert (found.strangers, found.repeats, found.places.missing) == (0, 0, 0)


def test_output_and_errors_are_read_as_one(tmp_path: Path) -> None:
    """answered + failed + missing = sent."""
    found, lines = sort(tmp_path, ["a", "b", "c"], row("a"), row("b", 500))
    assert lines == [row("a"), row("b", 500), None]
    assert found.places.missing == 1


def test_the_first_valid_line_counts_and_strangers_are_set_aside(tmp_path: Path) -> None:
    content = b"\n".join([row("a", 500), row("a"), row("a", text="2"), row("z"), b"{cut", b"[]", row("")])
    found, lines = sort(tmp_path, ["a"], content)
    assert lines == [row("a")]
    assert (found.strangers, found.repeats) == (4, 2)
    aside = (tmp_path / "strange" / "x").read_bytes().splitlines()
    assert aside == [row("a", text="2"), row("z"), b"{cut", b"[]", row("")]


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    """It is a stranger; what follows it is read."""
    huge = b'{"custom_id":"' + b"x" * (MOST_LINE_BYTES + 5) + b'"}'
    found, lines = sort(tmp_path, ["a"], huge + b"\n" + row("a") + b"\n")
    assert lines == [row("a")]
    assert found.strangers == 1


def test_nothing_strange_leaves_no_file(tmp_path: Path) -> None:
    sort(tmp_path, ["a"], row("a"))
    assert list((tmp_path / "strange").iterdir()) == []
