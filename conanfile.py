"""The Conan 2 recipe of lockstep: headers, and the CMake and pkg-config packages of its install; with header_only=False the
static libraries of the compiled form, too.

    conan create . -pr:a packaging/conan/debian.profile          # on Debian, with its libraries
    conan create . -s compiler.cppstd=20 -o "&:cluster=False" --build=missing

Conan Center's oneDNN is not built with OpenMP by default. Name what your system has in the profile,
and CMake finds it there, as debian.profile does. That way is tested; the second, with all libraries
from Conan Center, is not.
"""
import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy


class Lockstep(ConanFile):
    name = "lockstep"
    description = "Synchronous distributed training of neural networks, composed at compile time"
    license = "Apache-2.0"
    topics = ("deep-learning", "distributed-training", "keras", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    # mpi: with the system's MPI, whose mpirun starts the processes; cuda: with the headers of the CUDA toolkit, cuDNN and NCCL
    # that the system has.
    options = {"header_only": [True, False], "cpu": [True, False], "cluster": [True, False],
               "tensorboard": [True, False], "onnx": [True, False], "testing": [True, False], "mpi": [True, False],
               "cuda": [True, False]}
    default_options = {"header_only": True, "cpu": True, "cluster": True, "tensorboard": True, "onnx": True,
                       "testing": False, "mpi": False, "cuda": False}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"
    test_package_folder = "packaging/conan/test_package"
    no_copy_source = True

    def set_version(self):
        header = pathlib.Path(self.recipe_folder, "include/lockstep/core/version.hpp").read_text()
        self.version = ".".join(re.search(rf"define LOCKSTEP_VERSION_{part} (\d+)", header).group(1)
                                for part in ("MAJOR", "MINOR", "PATCH"))

    def requirements(self):
        self.requires("fmt/[>=9.1 <13]")
        self.requires("rapidjson/[>=1.1]")
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("openssl/[>=3 <4]")
        if self.options.cpu:
            self.requires("onednn/[>=2.6 <4]")
        if self.options.cluster:
            self.requires("asio/[>=1.22]")
        if self.options.tensorboard or self.options.onnx:
            self.requires("protozero/[>=1.7]")

    def validate(self):
        check_min_cppstd(self, 20)
        for part in ("mpi", "testing"):
            if self.options.get_safe(part) and not self.options.cluster:
                raise ConanInvalidConfiguration(f"{part} is based on cluster; turn on cluster as well")

    def configure(self):
        self.package_type = "header-library" if self.options.header_only else "static-library"

    def package_id(self):
        if self.info.options.header_only:
            self.info.settings.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"LOCKSTEP_BUILD_{part}"] = False
        toolchain.cache_variables["LOCKSTEP_INSTALL"] = True
        toolchain.cache_variables["LOCKSTEP_COMPILED"] = not self.options.header_only
        components = ["core"] + [c for c in ("cpu", "cluster", "tensorboard", "onnx", "testing", "mpi", "cuda") if self.options.get_safe(c)]
        toolchain.cache_variables["LOCKSTEP_COMPONENTS"] = ";".join(components)
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if not self.options.header_only:
            cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, str(pathlib.Path(self.package_folder, "licenses")))

    def package_info(self):
        # The installed package knows its components and finds what they need.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/lockstep"]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
