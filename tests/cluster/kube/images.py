"""A folder as a container image, without container tools: an archive as `ctr images import` takes it."""

import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile


def busybox(program, folder):
    """A root with nothing but busybox."""
    folder = pathlib.Path(folder)
    for name in ("bin", "etc", "tmp", "proc", "sys", "dev"):
        (folder / name).mkdir(parents=True)
    shutil.copy(program, folder / "bin/busybox")
    for name in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (folder / "bin" / name).symlink_to("busybox")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    return folder


def pack(name, archive, folder, command):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(folder, arcname=".")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": command, "WorkingDir": "/"},
                         "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}, "history": [{"created_by": "images.py"}]}).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in ((config_name, config), (f"{digest}/layer.tar", layer.getvalue()), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
