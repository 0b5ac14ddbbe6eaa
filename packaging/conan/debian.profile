# For Debian 12 with the packages that ./dev installs: what Conan need not build, since the system has it.
# conan create . -pr:a packaging/conan/debian.profile, and the same option for conan install in a program's folder
include(default)

[settings]
compiler.cppstd=20

[platform_requires]
fmt/9.1.0
rapidjson/1.1.0
zlib/1.2.13
openssl/3.0.11
onednn/2.6.3
asio/1.22.1
protozero/1.7.1
