"""Where the references of a JSON Schema lead, by the rules of all drafts: pointers, anchors and identifiers."""

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset({"const", "enum", "default", "examples"})
_METASCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")


class References:
    """The places of one schema that can be referred to."""

    def __init__(self, schema: Any) -> None:
        old = isinstance(schema, dict) and "draft-04" in str(schema.get("$schema"))
        self._id = "id" if old else "$id"
        self._bases: dict[int, str] = {}
        self._named: dict[str, Any] = {"": schema}
        self._dynamic: dict[str, list[Any]] = {}
        open_ = [("", schema)]
        while open_:
            base, each = open_.pop()
            if isinstance(each, dict):
                base = self._enter(base, each)
                open_.extend((base, inner) for keyword, inner in each.items() if keyword not in _DATA)
            elif isinstance(each, list):
                open_.extend((base, inner) for inner in each)

    def targets(self, schema: dict[str, Any], reference: Any) -> list[Any]:
        """What `reference`, standing in `schema`, may lead to: a dynamic one to any anchor of its name.

        Nothing for the metaschemas, which the engine knows. Raises ValueError for a reference that leads nowhere.
        """
        if not isinstance(reference, str):  # a keyword that this draft does not know
            return []
        base = self._bases[id(schema)]
        uri, anchor = (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        if uri.startswith(_METASCHEMAS) and uri not in self._named:
            return []
        if "$dynamicRef" in schema and anchor in self._dynamic:
            return self._dynamic[anchor]
        try:
            return [self._at(uri, unquote(anchor))]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ValueError(
                f"the reference {reference} can not be followed; let it name a place under $defs"
            ) from error

    def _enter(self, base: str, schema: dict[str, Any]) -> str:
        name = schema.get(self._id)
        if isinstance(name, str) and name.startswith("#"):
            self._named[base + name] = schema
        elif isinstance(name, str):
            base = urldefrag(urljoin(base, name)).url
            self._named[base] = schema
        self._bases[id(schema)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._named[f"{base}#{anchor}"] = schema
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(anchor, []).append(schema)
        return base

    def _at(self, uri: str, place: str) -> Any:
        if place and not place.startswith("/"):
            return self._named[f"{uri}#{place}"]
        found = self._named[uri]
        for step in place.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
        return found
