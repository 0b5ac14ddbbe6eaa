"""Loads the manifests of packaging/deployment and their schemas, for deployment.py and deployment_slow.py."""
import functools
import json
import os
import pathlib
import sys

try:
    import jsonschema
    import yaml
except ImportError:  # apt's packages belong to the system's Python
    if os.path.exists("/usr/bin/python3") and os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])
    sys.exit("the tests of the manifests need the packages python3-yaml and python3-jsonschema")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "deployment"


def strict(schema):
    """The schema with `additionalProperties: false` in each object that lists its properties."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if isinstance(schema.get("properties"), dict) and "type" in schema else closed


SCHEMAS = strict(yaml.safe_load(pathlib.Path(__file__).with_name("manifest_schemas.yaml").read_text("utf-8")))


def load():
    """The documents of each file, by its name; a value that a file has under an anchor is copied to each of its places."""
    return {path.name: json.loads(json.dumps(list(yaml.safe_load_all(path.read_text("utf-8"))))) for path in sorted(FOLDER.glob("*.yaml"))}


def kind_of(document):
    return f"{document.get('apiVersion')} {document.get('kind')}"


def schema_of(kind):
    return {"$defs": SCHEMAS["$defs"], **SCHEMAS["kinds"][kind]}


@functools.cache
def validator(kind):
    return jsonschema.Draft202012Validator(schema_of(kind))


def faults(document):
    """Fields and values that a document's schema refuses, as texts."""
    kind = kind_of(document)
    if kind not in SCHEMAS["kinds"]:
        return [f"there is no schema of {kind}"]
    return [f"{kind}: {'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator(kind).iter_errors(document)]
