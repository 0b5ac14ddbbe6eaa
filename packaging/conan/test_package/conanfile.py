from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        lockstep = self.dependencies[self.tested_reference_str]
        toolchain.cache_variables["LOCKSTEP_FORM"] = "core" if lockstep.options.header_only else "compiled"
        if lockstep.options.testing:
            toolchain.cache_variables["LOCKSTEP_COMPONENTS"] = "core;testing"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(f"{self.cpp.build.bindir}/program", env="conanrun")
