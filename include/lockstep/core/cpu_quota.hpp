/// \file
/// The CPU time that control groups allow this process, in cores. A container with `--cpus=2` on 64
/// cores may run on all of them, but only for two cores' time: more computing threads than that are
/// stopped for most of each period.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// `cores`: the smallest quota of the process' group and the groups above it, rounded up. `group`:
/// the inode of the group that sets it, equal for all processes of a machine that share it.
struct CpuQuota {
  int cores = 0;
  ino_t group = 0;
};

/// Reads the files of control groups, versions 1 and 2.
class CpuQuotaReader {
 public:
  /// `root`: before each path, "" for those of the system.
  explicit CpuQuotaReader(std::string root = "") : root_(std::move(root)) {}

  /// Nothing if no group limits the process.
  [[gnu::cold]] std::optional<CpuQuota> read() {
    for_lines(root_ + "/proc/self/mountinfo", [&](std::string_view line) { add_mount(line); });
    return found_;
  }

 private:
  template <class Body>
  static void for_lines(const std::string& path, const Body& body) {
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return;
    std::string line;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
      if (c != '\n')
        line += static_cast<char>(c);
      else {
        body(line);
        line.clear();
      }
    if (!line.empty()) body(line);
    std::fclose(file);
  }
  /// The n-th word, counted from 0; "" if there are fewer.
  static std::string_view word(std::string_view line, int n) {
    for (; n > 0; --n) {
      const auto end = line.find(' ');
      if (end == line.npos) return {};
      line.remove_prefix(end + 1);
    }
    return line.substr(0, line.find(' '));
  }
  static bool lists_cpu(std::string_view names) {
    for (; !names.empty(); names.remove_prefix(std::min(names.find(',') + 1, names.size()))) {
      if (names.substr(0, names.find(',')) == "cpu") return true;
      if (names.find(',') == names.npos) return false;
    }
    return false;
  }

  /// A line of mountinfo: "36 35 98:0 /root /point rw,... [fields] - type source options".
  void add_mount(std::string_view line) {
    const auto dash = line.find(" - ");
    if (dash == line.npos) return;
    const std::string_view type = word(line.substr(dash + 3), 0);
    const bool is_second = type == "cgroup2";
    if (!is_second && (type != "cgroup" || !lists_cpu(word(line.substr(dash + 3), 2)))) return;
    add_groups(std::string(word(line, 3)), root_ + std::string(word(line, 4)), is_second);
  }
  /// All groups from the process' own up to the one that is mounted.
  void add_groups(const std::string& mounted, const std::string& point, bool is_second) {
    std::string group;
    for_lines(root_ + "/proc/self/cgroup", [&](std::string_view line) {  // "4:cpu,cpuacct:/path"
      const auto names = line.find(':'), path = line.find(':', names + 1);
      if (names == line.npos || path == line.npos) return;
      const std::string_view list = line.substr(names + 1, path - names - 1);
      if (is_second ? list.empty() : lists_cpu(list)) group = line.substr(path + 1);
    });
    if (mounted != "/" && (group == mounted || group.starts_with(mounted + '/')))
      group.erase(0, mounted.size());
    if (group.find("/..") != group.npos) group.clear();  // outside of the namespace
    while (true) {
      const std::string folder = point + group;
      if (is_second)
        for_lines(folder + "/cpu.max",
                  [&](std::string_view line) { add_quota(word(line, 0), word(line, 1), folder); });
      else
        for_lines(folder + "/cpu.cfs_quota_us", [&](std::string_view quota) {
          for_lines(folder + "/cpu.cfs_period_us",
                    [&](std::string_view period) { add_quota(quota, period, folder); });
        });
      if (group.empty() || group == "/") return;
      const auto last = group.rfind('/');
      group.erase(last == group.npos ? 0 : last);
    }
  }
  void add_quota(std::string_view quota, std::string_view period, const std::string& folder) {
    const double time = number(quota), of = number(period);
    if (time <= 0 || of <= 0) return;
    const double cores = std::min(time / of, 1e6);
    const int whole = static_cast<int>(cores);
    const int rounded = std::max(1, whole + (cores > whole ? 1 : 0));
    if (found_ && found_->cores <= rounded) return;
    struct stat status {};
    ::stat(folder.c_str(), &status);
    found_ = CpuQuota{rounded, status.st_ino};
  }
  /// 0 for "max", "-1" and what is not a number.
  static double number(std::string_view text) {
    double value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return 0;
      value = 10 * value + (c - '0');
    }
    return value;
  }

  std::string root_;
  std::optional<CpuQuota> found_;
};

}  // namespace lockstep::detail
