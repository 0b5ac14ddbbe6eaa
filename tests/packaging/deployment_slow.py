#!/usr/bin/env python3
"""Each schema of manifest_schemas.yaml is a part of the published one: its fields exist there with the same types, and it requires
what that one requires. The published schemas are those in packages of PyPI. Exit code 4 if they cannot be installed.
Usage: deployment_slow.py"""
import ast
import json
import pathlib
import subprocess
import sys
import tempfile
import venv

import manifests

CORE = {"batch/v1 Job": "job-batch-v1", "v1 Service": "service-v1",
        "networking.k8s.io/v1 NetworkPolicy": "networkpolicy-networking-v1"}
MODELS = {"jobset.x-k8s.io/v1alpha2 JobSet": "JobsetV1alpha2JobSet",
          "trainer.kubeflow.org/v1alpha1 TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
          "trainer.kubeflow.org/v1alpha1 TrainJob": "TrainerV1alpha1TrainJob"}
TF_JOB = ("kubeflow_org_v1_tf_job", "kubeflow_org_v1_tf_job_spec", "kubeflow_org_v1_run_policy", "kubeflow_org_v1_replica_spec")
DUMP = """
import json, sys
from kubeflow_trainer_api import models
json.dump({name: getattr(models, name).model_json_schema() for name in sys.argv[1:]}, sys.stdout)
"""


def install(folder):
    """Installs the packages; the folder of their modules."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    for packages in (["kubeflow-trainer-api==2.3.0", "kubernetes-validate==1.37.0"], ["--no-deps", "kubeflow-training==1.9.4"]):
        if subprocess.run([*pip, *packages], capture_output=True).returncode:
            print("skipped: the packages with the published schemas cannot be installed")
            sys.exit(4)
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def resolved(schema, root):
    """A schema without references, and without the alternative null."""
    while True:
        if "$ref" in schema:
            target = root
            for key in schema["$ref"].partition("#/")[2].split("/"):
                target = target[key]
            schema = target
        elif len(options := [o for o in schema.get("anyOf", schema.get("oneOf", ())) if o.get("type") != "null"]) == 1:
            schema = options[0]
        else:
            return schema


def types(schema, root):
    """The JSON types that a schema accepts; empty: any."""
    schema = resolved(schema, root)
    if "const" in schema or "enum" in schema:
        return {"string"}  # all constants of ours are strings
    found = schema.get("type", [])
    found = {found} if isinstance(found, str) else set(found)
    for option in schema.get("anyOf", schema.get("oneOf", ())):
        found |= types(option, root)
    return found - {"null"}


def differences(ours, ours_root, theirs, theirs_root, path):
    """Where our schema is not a part of the published one."""
    ours, theirs = resolved(ours, ours_root), resolved(theirs, theirs_root)
    mine, published = types(ours, ours_root), types(theirs, theirs_root)
    if published and not mine <= published | ({"integer"} if "number" in published else set()):
        yield f"{path}: is {mine}, but published as {published}"
    if "properties" in ours:
        fields = theirs.get("properties", {})
        yield from (f"{path}: {name} is required" for name in theirs.get("required", ()) if name not in ours.get("required", ()))
        for name, field in ours["properties"].items():
            if name not in fields:
                yield f"{path}: {name} is not published"
            else:
                yield from differences(field, ours_root, fields[name], theirs_root, f"{path}.{name}")
    elif "array" in mine:
        yield from differences(ours["items"], ours_root, theirs["items"], theirs_root, f"{path}[]")


def tf_job_fields(packages):
    """The names of all fields of a TFJob, from the tables of its classes."""
    names = set()
    for module in TF_JOB:
        tree = ast.parse((packages / "kubeflow" / "training" / "models" / f"{module}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "attribute_map":
                names |= set(ast.literal_eval(node.value).values())
    return names


def main():
    with tempfile.TemporaryDirectory() as folder:
        packages = install(pathlib.Path(folder))
        files = packages / "kubernetes_validate" / "kubernetes-json-schema" / "v1.37.0-local-strict"
        published = {kind: json.loads((files / f"{name}.json").read_text()) for kind, name in CORE.items()}
        dumped = subprocess.run([pathlib.Path(folder, "bin", "python"), "-c", DUMP, *MODELS.values()], check=True, capture_output=True)
        published |= {kind: json.loads(dumped.stdout)[name] for kind, name in MODELS.items()}
        definitions = json.loads((files / "_definitions.json").read_text())["$defs"]
        tf_fields = tf_job_fields(packages)

    found = []
    for kind, theirs in published.items():
        ours = manifests.schema_of(kind)
        found += differences(ours, ours, theirs, {"$defs": definitions, **theirs}, kind)
    tf_job = manifests.schema_of("kubeflow.org/v1 TFJob")
    spec = tf_job["properties"]["spec"]["properties"]
    replica = tf_job["$defs"]["tfReplica"]["properties"]
    used = {*tf_job["properties"], *spec, *spec["runPolicy"]["properties"], *replica}
    found += [f"kubeflow.org/v1 TFJob: {name} is not published" for name in sorted(used - tf_fields)]
    if set(published) | {"kubeflow.org/v1 TFJob"} != set(manifests.SCHEMAS["kinds"]):
        found.append("a kind is not compared")
    # The comparison finds what is not published.
    wrong = json.loads(json.dumps(manifests.schema_of("jobset.x-k8s.io/v1alpha2 JobSet")))
    wrong["$defs"]["jobSetSpec"]["properties"]["networks"] = {"type": "object"}
    wrong["$defs"]["container"]["properties"]["image"] = {"type": "integer"}
    del wrong["$defs"]["container"]["required"]
    theirs = published["jobset.x-k8s.io/v1alpha2 JobSet"]
    count = len(list(differences(wrong, wrong, theirs, theirs, "")))
    if count != 3:
        found.append(f"the comparison has found {count} of 3 faults")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
