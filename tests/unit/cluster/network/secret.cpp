#include "lockstep/cluster/network/secret.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "lockstep/cluster/network/psk.hpp"
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

/// A file of this name and mode for the duration of the test.
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

TEST_CASE("the key of a job is HKDF-SHA256 of the secret and the job id") {
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

TEST_CASE("answers without proof count as another secret only if they go on for ten seconds") {
  using std::chrono::seconds;
  lockstep::detail::OtherSecret answers;
  const auto now = std::chrono::steady_clock::now();
  CHECK(answers.sentence().empty());
  CHECK_FALSE(answers.lasts());
  answers.note(now, "first");
  answers.note(now + seconds(9), "second");
  CHECK(answers.sentence() == "second");
  CHECK_FALSE(answers.lasts());
  answers.note(now + seconds(10), "third");
  CHECK(answers.lasts());
  answers.clear();  // another kind of answer
  answers.note(now + seconds(15), "fourth");
  CHECK_FALSE(answers.lasts());
}

TEST_CASE("a job that spans machines needs a secret, or LOCKSTEP_INSECURE=1") {
  for (const char* chief : {"10.0.0.1:12345", "node0:12345", "[fd00::1]:12345"}) {
    const auto cluster = job(chief);
    const std::string message = sentence([&] { read_secret(environment({}), cluster); });
    CHECK(message.find("LOCKSTEP_SECRET_FILE") != std::string::npos);
    CHECK(message.find(chief) != std::string::npos);
    CHECK(sentence([&] { read_secret(environment({{"LOCKSTEP_INSECURE", "0"}}), cluster); }) ==
          message);
    CHECK(message.starts_with("the job has no secret, and "));
    CHECK(sentence([&] {
            read_secret(environment({{"LOCKSTEP_SECRET_FILE", ""}}), cluster);
          }).starts_with("the job has no secret (LOCKSTEP_SECRET_FILE is empty), and "));
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

TEST_CASE("invalid secret variables are refused by name") {
  const auto cluster = job("127.0.0.1:12345");
  const auto message = [&](cluster_test::Variables variables) {
    return sentence([&] { read_secret(environment(std::move(variables)), cluster); });
  };
  CHECK(message({{"LOCKSTEP_SECRET", "fifteen bytes.."}}).find("LOCKSTEP_SECRET holds 15 bytes") ==
        0);
  CHECK(message({{"LOCKSTEP_SECRET", "fifteen bytes.."}}).find("fifteen") == std::string::npos);
  CHECK(message({{"LOCKSTEP_INSECURE", "yes"}}).find("LOCKSTEP_INSECURE=\"yes\"") == 0);
  CHECK(message({{"LOCKSTEP_SECRET", bytes}, {"LOCKSTEP_SECRET_FILE", "/x"}}).find("both set") !=
        std::string::npos);
  CHECK(message({{"LOCKSTEP_SECRET_FILE", "/no/such/file"}}).find("cannot be read: No such file") !=
        std::string::npos);
  CHECK(message({{"LOCKSTEP_SECRET_FILE", "/"}}).find("is not a regular file") !=
        std::string::npos);
}

TEST_CASE("a secret file must be private to its owner, and its last newline is dropped") {
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

TEST_CASE("a secret of few distinct bytes is refused, random ones never are") {
  const auto message = [](const std::string& text) {
    return sentence([&] { Secret(text, "it"); });
  };
  CHECK(message(std::string(32, 'x')).find("it has only 1 distinct bytes, so it can be guessed") ==
        0);
  CHECK(message("abcdefgabcdefgabcdefg").find("it has only 7 distinct bytes") == 0);
  CHECK(message(std::string(32, 'x')).find("openssl rand -hex 32") != std::string::npos);
  CHECK(message("abcdefghabcdefgh") == "no error");
  std::mt19937 random{1};
  for (int i = 0; i < 1000; ++i) {
    std::string hex;
    for (int k = 0; k < 64; ++k) hex += "0123456789abcdef"[random() % 16];
    REQUIRE(message(hex) == "no error");
  }
}

TEST_CASE("a core dump does not contain the secret") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("the shadow memory of the sanitizer is too large to read");
#endif
  int go[2], ready[2];
  REQUIRE((::pipe(go) == 0 && ::pipe(ready) == 0));
  const std::string path =
      (std::filesystem::temp_directory_path() / "core").string() + std::to_string(::getpid());
  const pid_t child = ::fork();  // before the secret exists
  REQUIRE(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    const Secret secret = lockstep::detail::read_secret_file(path);
    const Secret copy = secret;
    (void)copy.key("job");
    (void)!::write(ready[1], secret.empty() ? "-" : "+", 1);
    ::pause();
    ::_exit(0);
  }
  std::string pattern;
  std::random_device random;
  for (int i = 0; i < 48; ++i) pattern += static_cast<char>('!' + random() % 90);
  {
    std::ofstream(path) << pattern << '\n';
    ::chmod(path.c_str(), 0600);
  }
  char byte = 0;
  REQUIRE(::write(go[1], "x", 1) == 1);
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(byte == '+');
  std::ifstream map("/proc/" + std::to_string(child) + "/smaps"),
      memory("/proc/" + std::to_string(child) + "/mem", std::ios::binary);
  std::size_t dumped = 0, left_out = 0, begin = 0, end = 0;
  for (std::string line; std::getline(map, line);) {
    unsigned long from = 0, to = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) == 3) {
      begin = from;
      end = access[0] == 'r' && access[1] == 'w' ? to : from;
    }
    if (!line.starts_with("VmFlags:") || begin == end) continue;
    std::string content(end - begin, '\0');
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin));
    memory.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<std::size_t>(std::max<std::streamsize>(memory.gcount(), 0)));
    std::size_t& count = line.find(" dd") == std::string::npos ? dumped : left_out;
    for (std::size_t at = 0; (at = content.find(pattern, at)) != std::string::npos; ++at) ++count;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::filesystem::remove(path);
  for (const int file : {go[0], go[1], ready[0], ready[1]}) ::close(file);
  CHECK(dumped == 0);
  CHECK(left_out == 1);
}

TEST_CASE("a secret in an unnamed file can be read repeatedly through /proc") {
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
