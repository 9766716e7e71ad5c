"""Debian's kernel and an initramfs for the machine that judges: unpacked from packages, never installed.

The kernel comes from `apt-get download`, once; it and what is made of it stay in the build folder. The initramfs holds
busybox, the few modules that are needed, and programs of this host with their libraries. Raises Unavailable, with the
reason, where something of this cannot be had.
"""
import lzma
import pathlib
import re
import shutil
import subprocess
import tarfile

MODULES = ("virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_rxe", "sch_ingress", "cls_u32", "act_gact", "sch_netem")
# Where those and all they depend on live; the whole package is 400 MB.
MODULE_FOLDERS = ("crypto", "lib", "net/core", "net/ipv4", "net/ipv6", "net/sched", "drivers/virtio", "drivers/net/virtio_net",
                  "drivers/net/net_failover", "drivers/infiniband/core", "drivers/infiniband/sw/rxe")
META_PACKAGE = "linux-image-amd64"


class Unavailable(Exception):
    """The test cannot be run on this machine."""


def required(program, package):
    path = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise Unavailable(f"{program} is not installed (package {package})")
    return path


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=300, **options).stdout


def kernel_package(folder):
    """The .deb of the kernel that Debian's meta package names."""
    found = sorted(folder.glob("linux-image-*.deb"))
    if found:
        return found[-1]
    try:
        depends = run("apt-cache", "depends", META_PACKAGE, text=True)
        name = re.search(r"Depends: (linux-image-[\d.]+\S*-amd64)$", depends, re.MULTILINE)[1]
        run("apt-get", "download", name, cwd=folder, text=True)
    except (OSError, subprocess.SubprocessError, TypeError) as error:
        told = getattr(error, "stderr", None) or str(error)
        raise Unavailable(f"Debian's kernel ({META_PACKAGE}) cannot be downloaded: {told.strip().splitlines()[-1]}") from None
    return next(folder.glob("linux-image-*.deb"))


def unpack(package, folder):
    """The kernel's image and the modules of MODULE_FOLDERS, below `folder`."""
    wanted = re.compile(r"\./(boot/vmlinuz-|(usr/)?lib/modules/[^/]+/(modules\.|kernel/(" + "|".join(MODULE_FOLDERS) + ")))")
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted.match(member.name):
                    archive.extract(member, folder, set_attrs=False)
    if unpacking.returncode != 0:
        raise Unavailable(f"{package} cannot be unpacked")


def uncompressed(image):
    """The ELF kernel in a bzImage: QEMU starts it directly, which spares the emulated machine the decompression."""
    compressed = image.read_bytes()
    for magic, expand in ((b"\xfd7zXZ\0", lzma_stream), (b"\x28\xb5\x2f\xfd", zstd_stream)):
        for found in re.finditer(re.escape(magic), compressed):
            kernel = expand(compressed[found.start():])
            if kernel[:4] == b"\x7fELF":
                return kernel
    raise Unavailable(f"{image.name} is compressed in a way that is not known here")


def lzma_stream(data):
    try:
        return lzma.LZMADecompressor().decompress(data)
    except lzma.LZMAError:
        return b""


def zstd_stream(data):
    return subprocess.run([required("zstd", "zstd"), "-dc"], input=data, capture_output=True, timeout=60).stdout


def needed_modules(tree):
    """Paths below `tree` of MODULES and all that they depend on, by depmod's table."""
    table = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        path, _, depends = line.partition(":")
        table[re.sub(r"\.ko.*", "", pathlib.Path(path).name).replace("-", "_")] = [path, *depends.split()]
    missing = [name for name in MODULES if name not in table]
    if missing:
        raise Unavailable(f"this kernel has no module {', '.join(missing)}")
    return sorted({path for name in MODULES for path in table[name]})


class Archive:
    """A cpio archive in the kernel's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.entries = {}

    def add(self, name, mode, content=b""):
        for parent in reversed(pathlib.PurePath(name).parents):
            if str(parent) != "." and str(parent) not in self.entries:
                self.entries[str(parent)] = (0o040755, b"")
        self.entries[name] = (mode, content)

    def add_program(self, path, name=None):
        """A program or library of this host, and the libraries it needs, where it expects them."""
        path = pathlib.Path(path)
        self.add((name or str(path)).lstrip("/"), 0o100755, path.read_bytes())
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=30, env={"LC_ALL": "C"}).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            if library.lstrip("/") not in self.entries:
                self.add(library.lstrip("/"), 0o100755, pathlib.Path(library).read_bytes())

    def write(self, path):
        with open(path, "wb") as file:
            for number, (name, (mode, content)) in enumerate([*self.entries.items(), ("TRAILER!!!", (0, b""))], 1):
                fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
                record = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
                file.write(record + bytes(-len(record) % 4) + content + bytes(-len(content) % 4))


def prepare_kernel(folder):
    """(uncompressed kernel, module tree) in `folder`, made at the first call."""
    image = folder / "vmlinux"
    if not image.exists():
        shutil.rmtree(folder / "tree", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        unpack(kernel_package(folder), folder / "tree")
        release = next(folder.glob("tree/**/lib/modules/*"))
        for packed in release.glob("**/*.ko.xz"):  # a kernel later than Debian 12's
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
            packed.unlink()
        run(required("busybox", "busybox-static"), "depmod", "-b", release.parents[2], release.name)
        unfinished = folder / "vmlinux.part"
        unfinished.write_bytes(uncompressed(next(folder.glob("tree/boot/vmlinuz-*"))))
        unfinished.rename(image)
    return image, next(folder.glob("tree/**/lib/modules/*"))


def write_initramfs(path, modules, init, programs, at_home=()):
    """`init` is the text of the first process; `programs` are names in /bin and paths on this host. Those that are `at_home`
    look for their libraries from where they lie, and lie there in the machine, too."""
    archive = Archive()
    for name in ("proc", "sys", "dev", "run", "tmp", "sbin"):
        archive.add(name, 0o040755)
    archive.add("init", 0o100755, init.encode())
    archive.add("bin/busybox", 0o100755, pathlib.Path(required("busybox", "busybox-static")).read_bytes())
    for name, program in programs.items():
        archive.add_program(program, f"bin/{name}")
    for program in at_home:
        archive.add_program(program)
    provider = next(pathlib.Path("/usr/lib").glob("*/libibverbs/librxe-*.so"), None)
    if provider is None:
        raise Unavailable("libibverbs has no driver for rxe (package ibverbs-providers)")
    archive.add_program(provider)
    archive.add("etc/libibverbs.d/rxe.driver", 0o100644, b"driver rxe\n")
    tree = f"lib/modules/{modules.name}"
    for name in ("modules.dep", "modules.alias", "modules.symbols"):
        archive.add(f"{tree}/{name}", 0o100644, (modules / name).read_bytes())
    for name in needed_modules(modules):
        archive.add(f"{tree}/{name}", 0o100644, (modules / name).read_bytes())
    archive.write(path)
