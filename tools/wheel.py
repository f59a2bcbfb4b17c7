#!/usr/bin/env python3
"""Writes wheels of what BUILD holds: `pesc` is the Python module, libpesc, the command and the libraries that they need;
`pesc-cuda`, where the CUDA part was built, is that part alone, which finds CUDA's libraries in NVIDIA's wheels or where
this machine has them.

    tools/wheel.py BUILD OUT

The libraries of this machine get names and run paths of their own (patchelf), so that a Python process with others of the
same name keeps both apart. The tag of the platform is the newest version of the C library that any symbol asks for."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

PROJECT = tomllib.loads(pathlib.Path("python/pyproject.toml").read_text())["project"]
VERSION = re.search(r'"(.*)"', pathlib.Path("python/pesc/_version.py").read_text()).group(1)
OF_THE_MACHINE = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux-[a-z0-9-]+)\.so")
SHARE = ("train.jsonl", "test.jsonl", "tune.yaml", "base")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


# ---- libraries

def needed(program, search):
    """Paths of the shared libraries a file needs, without those of the C library and of the graphics driver."""
    out = run("ldd", program, env={**os.environ, "LD_LIBRARY_PATH": str(search)})
    missing = re.findall(r"(\S+) => not found", out)
    if missing:
        sys.exit(f"wheel: {program} needs {', '.join(missing)}, which this machine does not have")
    return [pathlib.Path(p) for p in re.findall(r"=> (/\S+)", out) if not OF_THE_MACHINE.match(pathlib.Path(p).name)]


def collect(package, build):
    """Copies libraries beside the package's libpesc, stripped, each under a name that holds its hash."""
    own, found = package / "lib/libpesc.so.0", {}
    for path in needed(package / "bin/pesc", build / "dist"):
        if path.name == own.name:
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        found[path.name] = (path.resolve(), package / "lib" / path.name.replace(".so", f"-{digest}.so", 1))
        shutil.copyfile(path, found[path.name][1])
    copies = [copy for _, copy in found.values()]
    for file in [package / "bin/pesc", own, *copies]:
        run("strip", "--strip-unneeded", file)
        names = run("patchelf", "--print-needed", file).split()
        changes = [("--replace-needed", name, found[name][1].name) for name in names if name in found]
        changes += [("--set-soname", file.name)] if file in copies else []
        changes.append(("--force-rpath", "--set-rpath", "$ORIGIN/../lib" if file.parent.name == "bin" else "$ORIGIN"))
        for change in changes:  # one at a time: patchelf 0.14 mixes up several
            run("patchelf", *change, file)
    return [original for original, _ in found.values()]


def licences(libraries):
    """Debian's copyright files of the packages that libraries come from, by package."""
    owners = {}
    for library in libraries:
        out = subprocess.run(["dpkg", "-S", f"*/{library.name}"], text=True, stdout=subprocess.PIPE).stdout
        for package in re.findall(r"^([^:]+)(?::\w+)?: /(?:usr/)?lib/\w+-linux-gnu/", out, re.M):
            owners[package] = pathlib.Path("/usr/share/doc", package, "copyright")
    return {package: path.read_bytes() for package, path in sorted(owners.items()) if path.exists()}


def platform(files):
    """manylinux_2_N_ and the machine, x86_64 or aarch64: the C library that the files need."""
    versions = [int(n) for file in files for n in re.findall(r"GLIBC_2\.(\d+)", run("objdump", "-T", file))]
    return f"manylinux_2_{max(versions)}_{os.uname().machine}"


# ---- wheels

def metadata(name, *more, text=""):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {VERSION}", f"Summary: {PROJECT['description']}",
             f"License: {PROJECT['license']['text']}", f"Requires-Python: {PROJECT['requires-python']}", *more]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", text])


def write_wheel(out, name, tag, files):
    """files: path in the wheel -> (bytes, is a program). The same files make the same bytes."""
    stem = f"{name.replace('-', '_')}-{VERSION}"
    info = f"{stem}.dist-info"
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tools/wheel.py\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), False)
    record = "".join(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
                     for path, (data, _) in sorted(files.items()))
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), False)
    path = out / f"{stem}-py3-none-{tag}.whl"
    for old in out.glob(f"{name.replace('-', '_')}-*.whl"):
        old.unlink()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for inside, (data, program) in sorted(files.items(), key=lambda item: (".dist-info/" in item[0], item[0])):
            entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def tree(folder, under):
    """The files of a folder as write_wheel() takes them."""
    return {str(under / p.relative_to(folder)): (p.read_bytes(), os.access(p, os.X_OK)) for p in sorted(folder.rglob("*")) if p.is_file()}


def main_wheel(build, out):
    package = build / "wheel/pesc"
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree("python/pesc", package, ignore=shutil.ignore_patterns("__pycache__"))
    for place in ("bin", "lib", "share/pesc"):
        (package / place).mkdir(parents=True)
    shutil.copy(build / "dist/pesc", package / "bin/pesc")
    shutil.copy(build / "dist/libpesc.so.0", package / "lib/libpesc.so.0")
    for name in SHARE:
        copy = shutil.copytree if pathlib.Path("share", name).is_dir() else shutil.copyfile
        copy(f"share/{name}", package / "share/pesc" / name)
    libraries = collect(package, build)
    tag = platform([package / "bin/pesc", *(package / "lib").glob("*.so*")])
    files, info = tree(package, pathlib.Path("pesc")), f"pesc-{VERSION}.dist-info"
    files[f"pesc-{VERSION}.data/scripts/pesc"] = (pathlib.Path("packaging/wheel/pesc").read_bytes(), True)
    files[f"{info}/METADATA"] = (metadata("pesc", "Provides-Extra: numpy", 'Requires-Dist: numpy; extra == "numpy"',
                                          text=pathlib.Path("docs/python.md").read_text()).encode(), False)
    files[f"{info}/licenses/LICENSE"] = (pathlib.Path("LICENSE").read_bytes(), False)
    for owner, text in licences(libraries).items():
        files[f"{info}/licenses/{owner}"] = (text, False)
    write_wheel(out, "pesc", tag, files)


def cuda_wheel(build, out):
    """The CUDA part, for the places of cuBLASLt in NVIDIA's wheels: nvidia/cu13 beside the package, or nvidia/cublas of CUDA 12."""
    part = build / "wheel-cuda/pesc/lib/pesc/pesc-cuda.so"
    shutil.rmtree(build / "wheel-cuda", ignore_errors=True)
    part.parent.mkdir(parents=True)
    shutil.copy(build / "pesc-cuda.so", part)
    run("strip", "--strip-unneeded", part)
    major = re.search(r"libcublasLt\.so\.(\d+)", run("patchelf", "--print-needed", part)).group(1)
    folder, project = ("cu13/lib", "nvidia-cublas") if major == "13" else ("cublas/lib", f"nvidia-cublas-cu{major}")
    run("patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/../../../nvidia/{folder}:/usr/local/cuda/lib64", part)
    files = tree(build / "wheel-cuda/pesc", pathlib.Path("pesc"))
    files[f"pesc_cuda-{VERSION}.dist-info/METADATA"] = (metadata("pesc-cuda", f"Requires-Dist: pesc=={VERSION}", f"Requires-Dist: {project}",
                                                                text="The CUDA part of pesc.\n").encode(), False)
    write_wheel(out, "pesc-cuda", platform([part]), files)


def main():
    build, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    main_wheel(build, out)
    if (build / "pesc-cuda.so").exists():
        cuda_wheel(build, out)


if __name__ == "__main__":
    main()
