#include "lockstep/cluster/rendezvous/secret.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "unit/cluster/support.hpp"

using cluster_test::environment;
using cluster_test::sentence;
using lockstep::read_secret;
using lockstep::Secret;

namespace {

lockstep::ResolvedCluster job(const char* chief) {
  lockstep::ResolvedCluster result;
  result.world_size = 2;
  result.rank = 0;
  result.chief = lockstep::parse_host_port(chief, "chief");
  return result;
}

/// A file of this name and mode, while the test lasts.
struct File {
  std::string path;
  File(const char* name, const std::string& bytes, mode_t mode)
      : path((std::filesystem::temp_directory_path() / name).string() +
             std::to_string(::getpid())) {
    std::ofstream(path) << bytes;
    ::chmod(path.c_str(), mode);
  }
  ~File() { std::filesystem::remove(path); }
};

const std::string bytes = "0123456789abcdef";

}  // namespace

TEST_CASE("the key of a job is HKDF-SHA256 of the secret and the job's id") {
  // openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:30..66 -kdfopt
  // info:'lockstep/1|job' HKDF
  const auto key = Secret(bytes).key("job");
  std::string hex;
  for (const unsigned byte : key) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    hex += two;
  }
  CHECK(hex == "f40f71bd9fd09fd7dda9343113e12bd341cf8e6147bdfc672bc0631ca331e555");
  CHECK(Secret(bytes).key("job") == key);
  CHECK(Secret(bytes).key("jobs") != key);
  CHECK(Secret(bytes + "0").key("job") != key);
}

TEST_CASE("between machines a job needs a secret, or the word that there shall be none") {
  for (const char* chief : {"10.0.0.1:12345", "node0:12345", "[fd00::1]:12345"}) {
    const auto cluster = job(chief);
    const std::string said = sentence([&] { read_secret(environment({}), cluster); });
    CHECK(said.find("LOCKSTEP_SECRET_FILE") != std::string::npos);
    CHECK(said.find(chief) != std::string::npos);
    CHECK(sentence([&] {
            read_secret(environment({{"LOCKSTEP_INSECURE", "0"}}), cluster);
          }) == said);
    CHECK(read_secret(environment({{"LOCKSTEP_INSECURE", "1"}}), cluster).empty());
    CHECK_FALSE(read_secret(environment({{"LOCKSTEP_SECRET", bytes}}), cluster).empty());
  }
  CHECK(read_secret(environment({}), job("127.0.0.1:12345")).empty());
  CHECK(read_secret(environment({}), job("localhost:12345")).empty());
  auto alone = job("10.0.0.1:12345");
  alone.world_size = 1;
  CHECK(read_secret(environment({}), alone).empty());
  auto bound = job("127.0.0.1:12345");
  bound.bind = lockstep::BindAddress{"0.0.0.0", std::nullopt};
  CHECK(sentence([&] { read_secret(environment({}), bound); }).find("0.0.0.0") !=
        std::string::npos);
  auto far = job("127.0.0.1:12345");
  far.cluster = lockstep::ClusterSpec().worker("127.0.0.1:12345").worker("10.0.0.2:12345");
  CHECK(sentence([&] { read_secret(environment({}), far); }).find("10.0.0.2:12345") !=
        std::string::npos);
}

TEST_CASE("wrong variables of the secret are refused by name") {
  const auto cluster = job("127.0.0.1:12345");
  const auto said = [&](cluster_test::Variables variables) {
    return sentence([&] { read_secret(environment(std::move(variables)), cluster); });
  };
  CHECK(said({{"LOCKSTEP_SECRET", "fifteen bytes.."}}).find("LOCKSTEP_SECRET holds 15 bytes") == 0);
  CHECK(said({{"LOCKSTEP_SECRET", "fifteen bytes.."}}).find("fifteen") == std::string::npos);
  CHECK(said({{"LOCKSTEP_INSECURE", "yes"}}).find("LOCKSTEP_INSECURE=\"yes\"") == 0);
  CHECK(said({{"LOCKSTEP_SECRET", bytes}, {"LOCKSTEP_SECRET_FILE", "/x"}}).find("both set") !=
        std::string::npos);
  CHECK(said({{"LOCKSTEP_SECRET_FILE", "/no/such/file"}}).find("cannot be read: No such file") !=
        std::string::npos);
  CHECK(said({{"LOCKSTEP_SECRET_FILE", "/"}}).find("is no regular file") != std::string::npos);
}

TEST_CASE("a secret comes from a file that only its owner reads; its last newline is left out") {
  const auto cluster = job("127.0.0.1:12345");
  const auto read = [&](const File& file) {
    return read_secret(environment({{"LOCKSTEP_SECRET_FILE", file.path}}), cluster);
  };
  const auto key = Secret(bytes).key("job");
  CHECK(read(File("plain", bytes, 0600)).key("job") == key);
  CHECK(read(File("unix", bytes + "\n", 0600)).key("job") == key);
  CHECK(read(File("dos", bytes + "\r\n", 0400)).key("job") == key);
  CHECK(read(File("two", bytes + "\n\n", 0600)).key("job") != key);
  for (const mode_t mode : {0640u, 0604u, 0620u, 0666u}) {
    const File file("open", bytes, mode);
    CHECK(sentence([&] { read(file); }).find("chmod 600") != std::string::npos);
  }
  const File small("small", "fifteen bytes..\n", 0600),
      large("large", std::string(5000, 'x'), 0600);
  CHECK(sentence([&] { read(small); }).find("holds 15 bytes") != std::string::npos);
  CHECK(sentence([&] { read(large); }).find("a secret has 16 to 4096") != std::string::npos);
}

TEST_CASE("a secret in a file without a name is read through /proc, as often as asked") {
  const int file = ::memfd_create("secret", MFD_CLOEXEC);
  REQUIRE(file >= 0);
  REQUIRE(::write(file, (bytes + "\n").data(), bytes.size() + 1) == 17);
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
  const auto key = [&] { return lockstep::detail::read_secret_file(path).key("job"); };
  REQUIRE(::fchmod(file, 0600) == 0);
  CHECK(key() == Secret(bytes).key("job"));
  CHECK(key() == Secret(bytes).key("job"));
  REQUIRE(::fchmod(file, 0644) == 0);
  CHECK(sentence([&] { key(); }).find("chmod 600") != std::string::npos);
  ::close(file);
}
