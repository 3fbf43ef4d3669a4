"""The dataclasses and enumerations of `doppel/models.py`, made of the schemas of the supervisor's OpenAPI document."""

from __future__ import annotations

import re
import textwrap
from typing import Any

#: What is made, beside what it needs. Everything else that is referred to is `Any`.
ROOTS = [
    *("Domain", "DomainStats", "ProcessInfo", "PruneReport", "FileInfo", "FileChange", "FreezeReport", "FrozenImage"),
    *("Image", "Operation", "Event", "Version", "Info", "Volume", "VolumePruneReport", "Disk"),
    *("VirtualNetwork", "NetworkPruneReport", "FlowList"),
]
#: Names that differ here.
NAMES = {"Image": "ImageInfo", "Volume": "VolumeInfo", "Disk": "DiskInfo", "VirtualNetwork": "NetworkInfo"}
#: JSON as it is.
OPEN = {"Problem", "RestartPolicy"}
SCALARS = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
WIDTH = 120

Schema = dict[str, Any]


def named(schema: Schema) -> str | None:
    """The schema it refers to, also as one that may be null."""
    for part in [schema, *schema.get("oneOf", [])]:
        if "$ref" in part:
            return str(part["$ref"]).rsplit("/", 1)[1]
    return None


def order(schemas: dict[str, Schema]) -> list[str]:
    """What is made, each behind what it needs."""
    done: list[str] = []

    def visit(name: str) -> None:
        if name in done or name in OPEN:
            return
        for field in schemas[name].get("properties", {}).values():
            for schema in (field, field.get("items", {}), field.get("additionalProperties", {})):
                needed = named(schema) if isinstance(schema, dict) else None
                if needed:
                    visit(needed)
        done.append(name)

    for root in ROOTS:
        visit(root)
    return sorted(done, key=lambda name: "properties" in schemas[name])


def told(schema: Schema) -> str:
    text = schema.get("description") or next((p["description"] for p in schema.get("oneOf", []) if "$ref" in p), "")
    return " ".join(text.split())


def type_of(name: str, schema: Schema) -> str:
    """The type of a field, null apart."""
    needed = named(schema)
    if needed:
        return "Any" if needed in OPEN else NAMES.get(needed, needed)
    kinds = schema.get("type", [])
    match [kinds] if isinstance(kinds, str) else [k for k in kinds if k != "null"]:
        case ["array"]:
            return f"list[{type_of('', schema['items'])}]"
        case ["object"]:
            return f"dict[str, {type_of('', schema['additionalProperties'])}]"
        case ["string"] if name in ("at", "deadline") or name.endswith("_at"):
            return "datetime"
        case [kind] if kind in SCALARS:
            return SCALARS[kind]
    return "Any"


def nullable(schema: Schema) -> bool:
    return "null" in schema.get("type", []) or {"type": "null"} in schema.get("oneOf", [])


def default(kind: str, schema: Schema, schemas: dict[str, Schema]) -> str:
    """What a field is that is not given: as the schema says, else nothing of its type."""
    value = schema.get("default")
    needed = named(schema)
    if needed and needed not in OPEN:
        if "enum" in schemas[needed]:
            return f"{kind}.{(value or schemas[needed]['enum'][0]).upper()}"
        return f"field(default_factory={kind})"
    if kind.startswith(("list", "dict")):
        return f"field(default_factory={kind[:4]})"
    if value is not None:
        return repr(float(value) if kind == "float" else value).replace("'", '"')
    return {"int": "0", "float": "0.0", "bool": "False", "str": '""'}.get(kind, "None")


def docstring(text: str) -> list[str]:
    # The path of the interface is not the SDK's.
    text = re.sub(r"^`[A-Z]+ [^`]*`: (.)", lambda m: m[1].upper(), text)
    if len(text) <= WIDTH - 10:
        return [f'    """{text}"""']
    summary, _, rest = text.partition(". ")
    return [f'    """{summary}.', "", *(f"    {line}" for line in textwrap.wrap(rest, WIDTH - 4)), '    """']


def class_of(name: str, schemas: dict[str, Schema]) -> list[str]:
    schema, ours = schemas[name], NAMES.get(name, name)
    if "enum" in schema:
        members = [f'    {value.upper()} = "{value}"' for value in schema["enum"]]
        return [f"class {ours}(_Open):", *docstring(told(schema)), "", *members]
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {ours}:", *docstring(told(schema)), ""]
    for field, described in schema["properties"].items():
        kind = type_of(field, described)
        lines += [f"    #: {line}" for line in textwrap.wrap(told(described), WIDTH - 7)]
        if field in schema.get("required", ()) and not nullable(described):
            lines.append(f"    {field}: {kind}")
        elif nullable(described) and kind != "Any":
            lines.append(f"    {field}: {kind} | None = None")
        else:
            lines.append(f"    {field}: {kind} = {default(kind, described, schemas)}")
    return lines


def classes(schemas: dict[str, Schema]) -> str:
    """All of them, as they stand in the module."""
    return "\n\n\n".join("\n".join(class_of(name, schemas)) for name in order(schemas))
