"""Avro's binary form as straight-line code: one writer and one reader for each record, made from its schema.

A library that walks the schema for every record takes 20-40 µs for a row of thirty fields, a fifth of all that an item
costs. Here the schema is walked once, and what is left is Python without a branch too many; messages are read and
written as they are, without a dict between. Only what schemas/ uses is supported: records, enums, arrays, maps, unions
of null and one type, string, bytes, boolean, int, long.

Form: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding (2026-11-29).
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import count
from typing import Any

from nightmill.kernel.wire.numbers import NUMBERS, SHORT, long_rest, refuse, zigzag

_DOMAIN = "nightmill.kernel.domain."


def writer_of(schema: Mapping[str, Any]) -> Callable[[Any], bytes]:
    """What turns a message into its body; the record `schema` holds every type that it names.

    It raises `OverflowError` for a number of more than 64 bits, and `AttributeError`, `TypeError` or `KeyError` for a
    value that is not of its field's type.
    """
    return _Writer(schema).function()


def reader_of(schema: Mapping[str, Any], classes: Any) -> Callable[[bytes, int], Any]:
    """What turns `(bytes, offset of the body)` into a message; records are classes in the module `classes`.

    It raises `IndexError` for bytes that end too early, and `ValueError` for those that are no such body or have
    something after it. A count or length that the bytes do not hold costs nothing: it is refused where they end.
    """
    return _Reader(schema, classes).function()


class _Code:
    """Lines of a function, and the values they know by name."""

    def __init__(self, schema: Mapping[str, Any], **known: Any) -> None:
        self._schema = schema
        self._named = dict(definitions(schema))
        self._lines: list[str] = []
        self._depth = 1
        self._numbers = count(1)
        self.known: dict[str, Any] = known

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def block(self, head: str) -> "_Code":
        """What is written inside `with` stands under this head."""
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1

    def fresh(self) -> str:
        """A variable that is not in use."""
        return f"v{next(self._numbers)}"

    def compiled(self, name: str, arguments: str) -> Any:
        source = "\n".join((f"def {name}({arguments}):", *self._lines))
        exec(compile(source, f"<avro {self._schema['name']}>", "exec"), self.known)
        return self.known[name]


def definitions(avro: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Records and enums that are written out in a schema, by name."""
    match avro:
        case {"type": "record" | "enum", "name": name}:
            yield name, avro
            for field in avro.get("fields", ()):
                yield from definitions(field["type"])
        case {"items": inner} | {"values": inner}:
            yield from definitions(inner)
        case [*branches]:
            for branch in branches:
                yield from definitions(branch)


def _short(avro: Any) -> str:
    """Name of a record or enum, written out or named."""
    name: str = avro["name"] if isinstance(avro, Mapping) else avro
    return name.removeprefix("nightmill.")


class _Writer(_Code):
    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema, NUMBERS=NUMBERS, zigzag=zigzag)

    def function(self) -> Callable[[Any], bytes]:
        self.line("out = []")
        self.line("add = out.append")
        self._value(self._schema, "message")
        self.line("return b''.join(out)")
        made: Callable[[Any], bytes] = self.compiled("write", "message")
        return made

    def _value(self, avro: Any, value: str) -> None:
        match avro:
            case ["null", inner]:
                held = self.fresh()
                self.line(f"{held} = {value}")
                with self.block(f"if {held} is None:"):
                    self.line(r"add(b'\0')")
                with self.block("else:"):
                    self.line(r"add(b'\2')")
                    self._value(inner, held)
            case {"type": "array", "items": inner}:
                self._block(inner, value, "")
            case {"type": "map", "values": inner}:
                self._block(inner, value, ".items()")
            case "string":
                self.line(f"raw = {value}.encode()")
                self._bytes()
            case "bytes":
                self.line(f"raw = {value}")
                self._bytes()
            case "int" | "long":
                self._number(value)
            case "boolean":
                self.line(rf"add(b'\1' if {value} else b'\0')")
            case _:
                self._named_type(_short(avro), value)

    def _named_type(self, name: str, value: str) -> None:
        schema = self._named[name]
        if schema["type"] == "enum":
            self.known[f"symbols_{name}"] = {symbol: NUMBERS[at] for at, symbol in enumerate(schema["symbols"])}
            self.line(f"add(symbols_{name}[{value}])")
            return
        held = self.fresh()
        self.line(f"{held} = {value}")
        for field in schema["fields"]:
            self._value(field["type"], f"{held}.{field['name']}")

    def _block(self, inner: Any, value: str, items: str) -> None:
        """An array or map in one block, or none."""
        held, each = self.fresh(), self.fresh()
        self.line(f"{held} = {value}")
        with self.block(f"if {held}:"):
            self._number(f"len({held})")
            with self.block(f"for {each} in {held}{items}:"):
                if items:
                    self.line(f"raw = {each}[0].encode()")
                    self._bytes()
                self._value(inner, f"{each}[1]" if items else each)
        self.line(r"add(b'\0')")

    def _bytes(self) -> None:
        self._number("len(raw)")
        self.line("add(raw)")

    def _number(self, value: str) -> None:
        self.line(f"n = {value}")
        self.line(f"add(NUMBERS[n] if 0 <= n < {SHORT} else zigzag(n))")


class _Reader(_Code):
    def __init__(self, schema: Mapping[str, Any], classes: Any) -> None:
        super().__init__(schema, long_rest=long_rest, refuse=refuse)
        self._classes = classes

    def function(self) -> Callable[[bytes, int], Any]:
        message = self._value(self._schema)
        with self.block("if at != len(data):"):
            self.line("refuse('length of the record', at)")
        self.line(f"return {message}")
        made: Callable[[bytes, int], Any] = self.compiled("read", "data, at")
        return made

    def _value(self, avro: Any) -> str:
        """Lines that read a value; the expression that holds it then."""
        match avro:
            case ["null", inner]:
                return self._optional(inner)
            case {"type": "array", "items": inner}:
                return self._block(inner, keyed=False)
            case {"type": "map", "values": inner}:
                return self._block(inner, keyed=True)
            case "string":
                return self._kept(f"{self._bytes()}.decode()")
            case "bytes":
                return self._kept(self._bytes())
            case "int" | "long":
                self._number()
                return self._kept("(n >> 1) ^ -(n & 1)")
            case "boolean":
                self.line("n = data[at]; at += 1")
                self._check("n > 1", "boolean")
                return self._kept("n == 1")
        name = _short(avro)
        schema = self._named[name]
        return self._enum(name, schema) if schema["type"] == "enum" else self._record(name, schema)

    def _record(self, name: str, schema: Mapping[str, Any]) -> str:
        self.known[name] = getattr(self._classes, name)
        values = [f"{field['name']}={self._value(field['type'])}" for field in schema["fields"]]
        return self._kept(f"{name}({', '.join(values)})")

    def _enum(self, name: str, schema: Mapping[str, Any]) -> str:
        module, enum_name = schema["python"].split(".")
        enum = getattr(import_module(_DOMAIN + module), enum_name)
        self.known[f"members_{name}"] = [enum(symbol) for symbol in schema["symbols"]]
        self._number()
        self._check(f"n & 1 or n >= {2 * len(schema['symbols'])}", f"symbol of {enum_name}")
        return self._kept(f"members_{name}[n >> 1]")

    def _optional(self, inner: Any) -> str:
        found = self.fresh()
        self.line("n = data[at]; at += 1")
        with self.block("if n == 2:"):
            self.line(f"{found} = {self._value(inner)}")
        with self.block("else:"):
            self._check("n", "branch of a union")
            self.line(f"{found} = None")
        return found

    def _block(self, inner: Any, *, keyed: bool) -> str:
        """Blocks up to the empty one; one of a negative count has its size in bytes after it."""
        found, left = self.fresh(), self.fresh()
        self.line(f"{found} = {'{}' if keyed else '[]'}")
        with self.block("while True:"):
            self._number()
            with self.block("if not n:"):
                self.line("break")
            self.line(f"{left} = (n >> 1) ^ -(n & 1)")
            with self.block(f"if {left} < 0:"):
                self._number()
                self.line(f"{left} = -{left}")
            with self.block(f"while {left}:"):
                self.line(f"{left} -= 1")
                key = self._value("string") if keyed else ""
                value = self._value(inner)
                self.line(f"{found}[{key}] = {value}" if keyed else f"{found}.append({value})")
        return found if keyed else self._kept(f"tuple({found})")

    def _bytes(self) -> str:
        self._number()
        self._check("n & 1", "length of what follows")
        start = self.fresh()
        self.line(f"{start} = at; at += n >> 1")
        return f"data[{start}:at]"

    def _number(self) -> None:
        self.line("n = data[at]; at += 1")
        self.line("if n > 127: n, at = long_rest(data, n, at)")

    def _check(self, wrong: str, what: str) -> None:
        self.line(f"if {wrong}: refuse({what!r}, n)")

    def _kept(self, expression: str) -> str:
        found = self.fresh()
        self.line(f"{found} = {expression}")
        return found
