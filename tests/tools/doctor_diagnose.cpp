#include "doctor_diagnose.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "doctor_data.hpp"
#include "doctor_facts.hpp"
#include "doctor_host.hpp"
#include "doctor_memory.hpp"
#include "doctor_pairs.hpp"
#include "doctor_table.hpp"

namespace {

using namespace lockstep_doctor;

/// Four hosts on which nothing is wrong.
JobFacts healthy() {
  JobFacts job;
  for (const char* name : {"a", "b", "c", "d"}) {
    HostFacts host;
    host.rank = static_cast<std::int64_t>(job.hosts.size());
    host.host = name;
    host.machine = std::string("boot of ") + name;
    host.version = "0.1.0";
    host.cpu = "a processor";
    host.features = "avx2 fma avx512f";
    host.cores = host.machine_cores = 16;
    host.memory = std::int64_t{64} << 30;
    host.folder = "/save";
    host.disk = std::int64_t{100} << 30;
    host.files = 4096;
    host.gpus = "2 x GPU";
    host.driver = "550.1";
    host.data = "4 files, 1.00 KB, 0123";
    host.data_list = "images 900 aa\nlabels 100 bb\n";
    host.secret = "file";
    job.hosts.push_back(host);
  }
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = a + 1; b < 4; ++b)
      job.pairs.push_back({a, b, true, "", 1e-4, 1.2e8, 1.1e8, 0.001, 1e-4});
  return job;
}

PairFacts& pair_of(JobFacts& job, std::size_t a, std::size_t b) {
  for (PairFacts& pair : job.pairs)
    if (pair.a == a && pair.b == b) return pair;
  FAIL("no such pair");
  return job.pairs[0];
}

/// A temporary folder of a test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) FAIL("no temporary folder");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

struct Expected {
  bool is_problem;
  std::string where, what, remedy;
};

/// The job has exactly this finding.
void check_only(const JobFacts& job, const Expected& expected) {
  const auto findings = diagnose(job);
  INFO(expected.what);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].is_problem == expected.is_problem);
  CHECK(findings[0].where == expected.where);
  CHECK(findings[0].what.find(expected.what) != std::string::npos);
  CHECK(findings[0].remedy.find(expected.remedy) != std::string::npos);
}

}  // namespace

TEST_CASE("a healthy job has no finding") {
  const JobFacts job = healthy();
  CHECK(diagnose(job).empty());
  const std::string text = report(job, {});
  CHECK(text.ends_with("verdict: ready to train\n"));
  CHECK(text.find("2 - 3  0.10 ms     960.0 Mbit/s  880.0 Mbit/s\n") != std::string::npos);
}

TEST_CASE("each fault of a host is named with its remedy") {
  const std::string c = "rank 2 (host c)";
  JobFacts job = healthy();
  SECTION("another version") {
    job.hosts[2].version = "0.0.9";
    check_only(job, {true, c, "it has lockstep 0.0.9, the chief has 0.1.0", "same version"});
  }
  SECTION("no AVX2") {
    job.hosts[2].features = "";
    check_only(job, {true, c, "(a processor) lacks AVX2", "expose the features"});
  }
  SECTION("no AVX2 anywhere") {
    for (HostFacts& host : job.hosts) host.features = "";
    CHECK(diagnose(job).size() == 4);
    CHECK(count_problems(diagnose(job)) == 0);
  }
  SECTION("no AVX-512") {
    job.hosts[2].features = "avx2 fma";
    check_only(job, {false, c, "lacks AVX-512", "last bits"});
  }
  SECTION("fewer cores") {
    job.hosts[2].cores = 2;
    check_only(job, {false, c, "may use 2 cores, most workers 16", "quotas"});
  }
  SECTION("little memory") {
    job.hosts[2].memory = 1 << 20;
    check_only(job, {true, c, "1.00 MB of memory", "end other programs"});
  }
  SECTION("a full disk") {
    job.hosts[2].disk = 0;
    check_only(job, {true, c, "the disk of /save is full", "free space"});
  }
  SECTION("a disk that cannot be written") {
    job.hosts[2].disk_fault = "Read-only file system";
    check_only(job, {true, c, "/save cannot be written: Read-only", "save elsewhere"});
  }
  SECTION("no folder for votes") {
    job.hosts[2].votes_fault = "elastic: /votes/lockstep-0 cannot be created (Permission denied)";
    check_only(job, {true, c, "/votes/lockstep-0 cannot be created", "elastic job"});
  }
  SECTION("few files") {
    job.hosts[2].files = 256;
    check_only(job, {false, c, "may open 256 files", "ulimit"});
  }
  SECTION("another data set") {
    job.hosts[2].data = "4 files, 1.00 KB, 4567";
    SECTION("a file differs") {
      job.hosts[2].data_list = "images 900 aa\nlabels 100 cc\n";
      check_only(job, {true, c, "of rank 0 (host a) (4 files, 1.00 KB, 0123); labels differs",
                       "copy one data set"});
    }
    SECTION("a file is missing") {
      job.hosts[2].data_list = "labels 100 bb\n";
      check_only(job, {true, c, "; it lacks images", "copy one data set"});
    }
    SECTION("a file is too many") {
      job.hosts[2].data_list = "images 900 aa\nimages2 1 dd\nlabels 100 bb\n";
      check_only(job, {true, c, "; only it has images2", "copy one data set"});
    }
  }
  SECTION("the data set of the chief is the odd one out") {
    job.hosts[0].data = "4 files, 1.00 KB, 4567";
    check_only(job, {true, "rank 0 (host a)", "another one than that of rank 1 (host b)", "copy"});
  }
  SECTION("no data set") {
    job.hosts[2].data.clear();
    job.hosts[2].data_fault = "/data does not exist";
    check_only(job, {true, c, "cannot be read: /data does not exist", "copy one data set"});
  }
  SECTION("another program") {
    for (HostFacts& host : job.hosts) host.program = "1 file, 2.00 MB, 89ab";
    job.hosts[2].program = "1 file, 2.00 MB, cdef";
    check_only(job, {true, c, "its program (1 file, 2.00 MB, cdef) is another one", "same build"});
  }
  SECTION("a missing GPU") {
    job.hosts[2].gpus = "1 x GPU";
    check_only(job, {false, c, "it has 1 x GPU, most hosts 2 x GPU", "dmesg"});
  }
  SECTION("another driver") {
    job.hosts[2].driver = "535.2";
    check_only(job, {false, c, "driver 535.2, most hosts 550.1", "same driver"});
  }
  SECTION("a broken driver") {
    job.hosts[2].gpus.clear();
    job.hosts[2].gpu_fault = "Unable to determine the device handle";
    check_only(job, {true, c, "nvidia-smi failed: Unable", "reload the driver"});
  }
  SECTION("an nvidia-smi that does not answer") {
    job.hosts[2].gpus.clear();
    job.hosts[2].gpu_doubt = "nvidia-smi has not answered within 10 s";
    check_only(job, {false, c, "not known: nvidia-smi has not", "restart of the host"});
  }
  SECTION("a data set that takes too long to read") {
    job.hosts[2].data.clear();
    job.hosts[2].data_doubt = "/data takes longer than 10 s to read";
    check_only(job, {false, c, "not compared: /data takes", "smaller folder"});
  }
  SECTION("a host that does not report") {
    HostFacts silent;
    silent.rank = 2;
    silent.host = "c";
    silent.machine = job.hosts[2].machine;
    silent.fault = "it has not reported on its host within 40 s";
    job.hosts[2] = silent;
    check_only(job, {true, c, "has not reported", "hangs there"});
  }
  SECTION("no secret") {
    for (HostFacts& host : job.hosts) host.secret = "none";
    check_only(job, {false, "the job", "has no secret", "LOCKSTEP_SECRET_FILE"});
  }
  SECTION("no port for data connections") {
    job.hosts[2].listen_fault = "data connections: cannot listen";
    for (PairFacts& pair : job.pairs)
      if (pair.a == 2 || pair.b == 2) pair.is_measured = false;
    check_only(job, {true, c, "cannot listen", "LOCKSTEP_PORT_RANGE"});
  }
}

TEST_CASE("each fault of a connection is named with its remedy") {
  const std::string where = "rank 1 (host b) and rank 3 (host d)";
  JobFacts job = healthy();
  PairFacts& pair = pair_of(job, 1, 3);
  SECTION("frames of full size are lost") {
    pair.is_measured = false;
    pair.fault = "it was made, but then: no answer in time";
    check_only(job,
               {true, where, "small messages pass between them, and large ones do not", "MTU"});
  }
  SECTION("a peer that ends while the link is measured") {
    pair.is_measured = false;
    pair.fault = "it was made, but then: the connection was closed";
    check_only(job, {true, where, "there is no data connection", "firewall"});
  }
  SECTION("a closed port") {
    pair.is_measured = false;
    pair.fault = "rank 3 could not connect to rank 1 at 10.0.0.2:5000";
    check_only(job, {true, where, "at 10.0.0.2:5000", "LOCKSTEP_PORT_RANGE"});
    CHECK(report(job, {}).find("1 - 3  none\n") != std::string::npos);
  }
  SECTION("10 Mbit/s in one direction") {
    pair.to_a = 10e6 / 8;
    check_only(job, {true, where, "transfers 10.0 Mbit/s, less than 100.0 Mbit/s", "ethtool"});
  }
  SECTION("within a machine it is not the network") {
    pair.to_a = 10e6 / 8;
    job.hosts[3].machine = job.hosts[1].machine;
    CHECK(diagnose(job).empty());
  }
  SECTION("other pairs of two machines share their link") {
    job.hosts[1].machine = job.hosts[0].machine;
    pair.to_a = 10e6 / 8;
    pair.round_trip = 0.02;
    CHECK(diagnose(job).empty());
    pair_of(job, 0, 3).to_a = 10e6 / 8;
    check_only(job, {true, "rank 0 (host a) and rank 3 (host d)", "transfers 10.0 Mbit/s", "tc"});
  }
  SECTION("much slower than the others") {
    pair.to_b = 2e7;
    check_only(job, {false, where, "160.0 Mbit/s; the median of all links is 880.0", "ethtool"});
  }
  SECTION("a long round trip") {
    pair.round_trip = 0.02;
    check_only(job, {false, where, "a round trip takes 20.00 ms", "one network"});
  }
}

TEST_CASE("a clock that differs from the chief's is named once for each machine") {
  for (const double seconds : {600.0, -600.0}) {
    JobFacts job = healthy();
    job.hosts[3].machine = job.hosts[2].machine;
    pair_of(job, 0, 2).clock = pair_of(job, 0, 3).clock = seconds;
    pair_of(job, 1, 3).clock = seconds;  // only that to the chief counts
    check_only(job, {true, "rank 2 (host c)",
                     seconds > 0 ? "600.0 s later than that of the chief" : "600.0 s earlier than",
                     "NTP"});
    pair_of(job, 0, 2).clock_error = pair_of(job, 0, 3).clock_error = 599.5;
    CHECK(diagnose(job).empty());  // the measurement proves nothing
  }
}

TEST_CASE("a part is long enough for its rate at ten round trips") {
  constexpr double gigabyte = 1e9, left = 100;
  CHECK(PairMeter::is_long_enough(0.02, gigabyte, 1e-4, left));
  CHECK_FALSE(PairMeter::is_long_enough(0.019, gigabyte, 1e-4, left));
  CHECK_FALSE(PairMeter::is_long_enough(0.02, 1e6, 1e-4, left));  // slow: may be a busy machine
  CHECK(PairMeter::is_long_enough(0.1, 1e6, 1e-4, left));
  CHECK_FALSE(PairMeter::is_long_enough(0.4, gigabyte, 0.05, left));
  CHECK(PairMeter::is_long_enough(0.5, gigabyte, 0.05, left));
  CHECK(PairMeter::is_long_enough(0.4, gigabyte, 0.05, 1.5));  // no time for twice as much
}

TEST_CASE("the page cache of a control group is not used memory") {
  const Folder root;
  root.write("a/b/memory.max", "1000\n");
  root.write("a/b/memory.current", "900\n");
  root.write("a/b/memory.stat", "anon 300\ninactive_file 400\nactive_file 200\n");
  CHECK(memory_of_groups("0::/a/b\n", root.path()) == 700);
  root.write("a/memory.max", "max\n");
  root.write("a/memory.current", "5000\n");
  CHECK(memory_of_groups("0::/a/b\n", root.path()) == 700);
  root.write("memory.max", "2000\n");  // the groups above count too
  root.write("memory.current", "1500\n");
  CHECK(memory_of_groups("0::/a/b\n", root.path()) == 500);
  CHECK(memory_of_groups("0::/of/another/namespace\n", root.path()) == 500);
  root.write("memory/c/memory.limit_in_bytes", "800\n");
  root.write("memory/c/memory.usage_in_bytes", "700\n");
  root.write("memory/c/memory.stat", "total_inactive_file 100\ntotal_active_file 50\n");
  CHECK(memory_of_groups("4:cpu,memory:/c\n3:cpuset:/x\n", root.path()) == 250);
  CHECK(memory_of_groups("4:cpu:/c\nnonsense\n", root.path()) == std::nullopt);
}

TEST_CASE("a data set may have circles of links and folders that are not data") {
  const Folder root;
  root.write("data/train/one", "1");
  root.write("data/two", "22");
  const std::string plain = fingerprint(root.path() / "data").text;
  CHECK(plain.starts_with("2 files, "));
  std::filesystem::create_directory_symlink("..", root.path() / "data/train/up");
  std::filesystem::create_symlink("itself", root.path() / "data/itself");
  std::filesystem::create_symlink("nothing", root.path() / "data/broken");
  root.write("data/lost+found/three", "333");
  CHECK(fingerprint(root.path() / "data").text == plain);
  root.write("data/train/four", "4444");
  CHECK(fingerprint(root.path() / "data").text != plain);
  root.write("elsewhere/five", "55555");
  std::filesystem::create_directory_symlink(root.path() / "elsewhere", root.path() / "data/link");
  CHECK(fingerprint(root.path() / "data").text.starts_with("4 files, "));
  const Fingerprint late = fingerprint(root.path() / "data", std::chrono::milliseconds(-1));
  CHECK(late.text.empty());
  CHECK(late.doubt.find("takes longer") != std::string::npos);
}

TEST_CASE("a command that hangs, or is not there, is not a failure of it") {
  std::string output;
  const std::chrono::seconds long_enough{60};
  CHECK(output_of({"sh", "-c", "echo out"}, long_enough, output) == Ending::success);
  CHECK(output == "out\n");
  CHECK(output_of({"sh", "-c", "exit 3"}, long_enough, output) == Ending::failure);
  CHECK(output_of({"no-such-program"}, long_enough, output) == Ending::not_found);
  CHECK(output_of({"sleep", "60"}, std::chrono::milliseconds(20), output) == Ending::late);
}

TEST_CASE("problems come before warnings and are counted") {
  JobFacts job = healthy();
  job.hosts[1].files = 10;
  job.hosts[2].disk = 0;
  const auto findings = diagnose(job);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].is_problem);
  CHECK(report(job, findings).ends_with("verdict: 1 problem, 1 warning\n"));
}

TEST_CASE("a failed join has a remedy") {
  CHECK(join_remedy("the chief at a:1 and this process do not have the same secret")
            .find("secret file") != std::string::npos);
  CHECK(join_remedy("differ in \"lockstep's version\": \"1\" and \"2\"").find("same version") !=
        std::string::npos);
  CHECK(join_remedy("rank 0 (a:1) could not be joined within 3 s: no answer").find("firewall") !=
        std::string::npos);
  CHECK(join_remedy("could not be joined within 3 s: connection refused").find("start rank 0") !=
        std::string::npos);
  CHECK(join_remedy("something else") == "");
}

TEST_CASE("facts survive the way through the store") {
  JobFacts job = healthy();
  job.hosts[2].disk_fault = "a \\ backslash\nand lines";
  const HostFacts host = decode(encode(job.hosts[2]));
  for_each_field(host, [&](std::string_view name, const auto& value) {
    for_each_field(job.hosts[2], [&](std::string_view other, const auto& expected) {
      if constexpr (std::is_same_v<decltype(value), decltype(expected)>)
        if (name == other) CHECK(value == expected);
    });
  });
  job.pairs[3].is_measured = false;
  job.pairs[3].fault = "why not";
  const auto pairs = decode_pairs(encode(job.pairs), 4);
  REQUIRE(pairs.size() == job.pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    CHECK(pairs[i].a == job.pairs[i].a);
    CHECK(pairs[i].b == job.pairs[i].b);
    CHECK(pairs[i].is_measured == job.pairs[i].is_measured);
    CHECK(pairs[i].fault == job.pairs[i].fault);
    CHECK(pairs[i].to_b == job.pairs[i].to_b);
    CHECK(pairs[i].clock_error == job.pairs[i].clock_error);
  }
  CHECK(
      decode_pairs("0 4 1 0 0 0 0 0 \n1 0 1 0 0 0 0 0 \n0 1 1 nan 0 0 0 0 \nx\n\n0\n", 4).empty());
  CHECK(decode("host \x1b[2Jb\nrank x\nmemory").host == "?[2Jb");  // nothing for the terminal
}

TEST_CASE("each two ranks meet once, and in each round a rank has one peer") {
  for (std::size_t size = 1; size <= 9; ++size) {
    std::set<std::pair<std::size_t, std::size_t>> met;
    std::vector<std::vector<std::optional<std::size_t>>> rounds;
    for (std::size_t rank = 0; rank < size; ++rank) rounds.push_back(schedule(rank, size));
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t round = 0; round < rounds[rank].size(); ++round) {
        const auto peer = rounds[rank][round];
        if (!peer) continue;
        REQUIRE(*peer < size);
        REQUIRE(*peer != rank);
        CHECK(rounds[*peer][round] == rank);
        CHECK(met.insert({rank, *peer}).second);
      }
    CHECK(met.size() == size * (size - 1));
  }
}
