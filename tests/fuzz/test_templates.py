"""Prompt templates as people may write them: rendered within bounds, or refused.

No template may run for ever, fill the memory, reach outside, or tell what a document holds.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bytes_of import TEXTS, searched
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.domain.sandbox import MAX_PROMPT_CHARACTERS

#: expressions that take all, reach out, or differ from run to run
TEMPLATES = [
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ text * 1000 }}{% endfor %}",
    "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ [1] * 1000000000 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ range(10 ** 9) | list }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ text | center(1000000000) }}",
    "{{ text | indent(1000000000) }}",
    "{{ text.ljust(1000000000) }}",
    "{{ (5).to_bytes(1000000000, 'big') }}",
    "{{ text | slice(1000000000) | list }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ 2 | round(-1000000000) }}",
    "{{ text | replace('', text * 9000) | replace('', text * 9000) }}",
    "{{ (text * 9000).join(['x'] * 9000) }}",
    "{{ ['x'] * 9000 | join(text * 9000) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ self._TemplateReference__context }}{{ self.__init__.__globals__ }}",
    "{{ text | attr('__class__') }}",
    "{{ '{0.__class__}'.format(text) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ [].append(1) }}{% set l = [1] %}{{ l.append(2) }}",
    "{{ range }}",
    "{{ text.upper }}",
    "{{ cycler(1) }}",
    "{{ joiner() | string }}",
    "{{ text | map('upper') }}",
    "{{ text | truncate(-5) }}",
    "{{ 1e999 | int }}",
    "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
    "{{ " + "not " * 5_000 + "1 }}",
    "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "{{ nothing }}",
    "{{ text",
]


@pytest.mark.parametrize("template", TEMPLATES, ids=[text[:40] for text in TEMPLATES])
def test_a_template_ends_in_bounds_or_is_refused(template: str) -> None:
    """P6: one job's template may not take the services from all the others."""
    with pytest.raises(PromptError, match=r"^prompt") as caught:
        parse_prompt(template).render({"text": "hello world"})
    assert "hello world" not in str(caught.value)


def test_a_prompt_that_grows_too_long_names_its_longest_field() -> None:
    row = {"title": "t", "body": "b" * (MAX_PROMPT_CHARACTERS // 2 + 1)}
    prompt = parse_prompt("{{ title }}{{ body }}{{ body }}")
    with pytest.raises(PromptError, match=r"grows beyond 8,388,608 characters; the longest field is 'body'"):
        prompt.render(row)
    assert len(parse_prompt("{{ body }}").render(row)[0].content) == len(row["body"])


def test_loops_of_an_honest_size_are_rendered() -> None:
    """Bounds are far from what anybody needs; `~`, loops and their variables work as before."""
    text = (
        "{% for t in tags %}{{ loop.index ~ '/' ~ loop.length }}:{{ t | upper }}{{ ', ' if not loop.last }}{% endfor %}"
    )
    assert parse_prompt(text).render({"tags": ["a", "b"]})[0].content == "1/2:A, 2/2:B"
    tree = "{% for n in tree recursive %}{{ n.name }}({{ loop(n.inner) }}){% endfor %}"
    nodes = [{"name": "a", "inner": [{"name": "b", "inner": []}]}]
    assert parse_prompt(tree).render({"tree": nodes})[0].content == "a(b())"
    many = {"rows": [{"n": number} for number in range(50_000)]}
    assert len(parse_prompt("{% for r in rows %}{{ r.n }},{% endfor %}").render(many)[0].content) > 200_000


WORDS = [
    "{{",
    "}}",
    "{%",
    "%}",
    " text ",
    " for i in ",
    "range(9)",
    " endfor ",
    " if ",
    " endif ",
    " set x = ",
    "|",
    "~",
    "*",
    "(",
    ")",
    "[",
    "]",
    ".",
    ",",
    "'",
    '"',
    "9",
    "999999999",
    "**",
    "loop",
    "recursive",
    "upper",
    "join",
    "\n",
    "user:\n",
]


@given(text=st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | TEXTS)
@searched(250)
def test_any_text_is_a_template_or_is_refused(text: str) -> None:
    try:
        parse_prompt(text).render({"text": "hello"})
    except PromptError as error:
        said = str(error)
        assert said.startswith("prompt")
