/// \file
#include "lockstep/core/process/cpu_quota.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "lockstep/core/process/cores.hpp"

using lockstep::detail::CpuQuota;
using lockstep::detail::read_cpu_quota;

namespace {

/// Files in a temporary folder.
class Root {
 public:
  explicit Root(const std::map<std::string, std::string>& files) {
    char name[] = "/tmp/lockstep_quota_XXXXXX";
    folder_ = ::mkdtemp(name);
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((folder_ / path).parent_path());
      std::ofstream(folder_ / path) << text;
    }
  }
  ~Root() { std::filesystem::remove_all(folder_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  /// 0: no quota.
  int cores() const {
    const auto quota = read_cpu_quota(folder_);
    return quota ? quota->cores : 0;
  }
  ino_t group() const { return read_cpu_quota(folder_).value().group; }

 private:
  std::filesystem::path folder_;
};

const std::string second =
    "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"
    "35 30 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string first =
    "33 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "34 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:8 - cgroup cgroup rw,cpu,cpuacct\n";

}  // namespace

TEST_CASE("the quota of cgroup v2 is that of the process' group") {
  const auto cores = [](const std::string& max) {
    return Root({{"proc/self/mountinfo", second},
                 {"proc/self/cgroup", "0::/job\n"},
                 {"sys/fs/cgroup/job/cpu.max", max}})
        .cores();
  };
  CHECK(cores("200000 100000\n") == 2);
  CHECK(cores("150000 100000\n") == 2);
  CHECK(cores("200001 100000\n") == 3);
  CHECK(cores("1000 100000\n") == 1);
  CHECK(cores("6400000 100000") == 64);
  CHECK(cores("max 100000\n") == 0);
  CHECK(cores("") == 0);
  CHECK(cores("many 100000\n") == 0);
  CHECK(cores("100000 0\n") == 0);
  CHECK(cores("100000\n") == 0);
}

TEST_CASE("the smallest quota of all ancestors counts") {
  const Root root({{"proc/self/mountinfo", second},
                   {"proc/self/cgroup", "0::/a/b/c\n"},
                   {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
                   {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
                   {"sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"},
                   {"sys/fs/cgroup/other/cpu.max", "100000 100000\n"}});
  CHECK(root.cores() == 3);
  CHECK(root.group() != 0);
}

TEST_CASE("in a container the mounted group is that of the container") {
  // With a cgroup namespace.
  CHECK(Root({{"proc/self/mountinfo", second},
              {"proc/self/cgroup", "0::/\n"},
              {"sys/fs/cgroup/cpu.max", "200000 100000\n"}})
            .cores() == 2);
  // Without a namespace: paths are those of the host, and the mount shows only a part of the
  // hierarchy.
  const std::string part = "35 30 0:30 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  CHECK(Root({{"proc/self/mountinfo", part},
              {"proc/self/cgroup", "0::/docker/f00/inner\n"},
              {"sys/fs/cgroup/cpu.max", "500000 100000\n"},
              {"sys/fs/cgroup/inner/cpu.max", "400000 100000\n"}})
            .cores() == 4);
  CHECK(Root({{"proc/self/mountinfo", second},
              {"proc/self/cgroup", "0::/../other\n"},
              {"sys/fs/cgroup/cpu.max", "500000 100000\n"},
              {"sys/fs/other/cpu.max", "100000 100000\n"}})
            .cores() == 5);
}

TEST_CASE(
    "a group whose path only has the mount's path as a text prefix is not part of the mount") {
  const std::string part = "35 30 0:30 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  for (const char* group : {"/docker/f00d/inner", "/docker/f00d", "docker"})
    CHECK(Root({{"proc/self/mountinfo", part},
                {"proc/self/cgroup", std::string("0::") + group + "\n"},
                {"sys/fs/cgroup/cpu.max", "500000 100000\n"},
                {"sys/fs/cgroup/d/cpu.max", "100000 100000\n"}})
              .cores() == 5);
}

TEST_CASE("the quota of cgroup v1 is read from the mount of the cpu controller") {
  const auto cores = [](const std::string& quota) {
    return Root({{"proc/self/mountinfo", first},
                 {"proc/self/cgroup", "5:cpuset:/set\n4:cpu,cpuacct:/job/one\n"},
                 {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota},
                 {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n"},
                 {"sys/fs/cgroup/cpu,cpuacct/job/one/cpu.cfs_quota_us", "-1\n"},
                 {"sys/fs/cgroup/cpu,cpuacct/job/one/cpu.cfs_period_us", "100000\n"},
                 {"sys/fs/cgroup/cpuset/set/cpu.cfs_quota_us", "1000\n"},
                 {"sys/fs/cgroup/cpuset/set/cpu.cfs_period_us", "100000\n"}})
        .cores();
  };
  CHECK(cores("150000\n") == 3);
  CHECK(cores("-1\n") == 0);
}

TEST_CASE("without control group files there is no quota") {
  CHECK(Root({{"proc/self/status", "x"}, {"proc/self/stat", "y"}}).cores() == 0);
  CHECK(Root({{"proc/self/mountinfo", "nonsense\n - \n - cgroup2\n36 35 - cgroup2 x y"},
              {"proc/self/cgroup", "::\n0:\n0::"}})
            .cores() == 0);
}

TEST_CASE("usable cores are limited by quota and affinity") {
  const lockstep::detail::Cores all;
  CHECK(lockstep::detail::usable_cores(all, std::nullopt) == all.count());
  CHECK(lockstep::detail::usable_cores(all, CpuQuota{1, 7}) == 1);
  CHECK(lockstep::detail::usable_cores(all, CpuQuota{4096, 7}) == all.count());
}
