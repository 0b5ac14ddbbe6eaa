#pragma once

#include "lockstep/core/process/cpu_quota.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// Reads the files of control groups, versions 1 and 2.
class CpuQuotaReader {
 public:
  explicit CpuQuotaReader(std::string root) : root_(std::move(root)) {}

  std::optional<CpuQuota> read() {
    const std::string mounts = content(format_text("{}/proc/self/mountinfo", root_));
    for (std::string_view rest = mounts; !rest.empty();) add_mount(next_line(rest));
    return found_;
  }

 private:
  /// Contents of a file; "" if it cannot be read.
  static std::string content(const std::string& path) {
    std::string result;
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return result;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) result += static_cast<char>(c);
    std::fclose(file);
    return result;
  }
  static std::string_view first_line(std::string_view lines) {
    return lines.substr(0, lines.find('\n'));
  }
  /// Removes the first line from `rest` and returns it.
  static std::string_view next_line(std::string_view& rest) {
    const std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    return line;
  }
  /// The n-th word of a line, counted from 0; "" if the line has fewer.
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
    add_groups(std::string(word(line, 3)), format_text("{}{}", root_, word(line, 4)), is_second);
  }
  /// Reads the quotas of the process' own group and all of its ancestors up to the mount point.
  void add_groups(const std::string& mounted, const std::string& point, bool is_second) {
    std::string group;
    const std::string groups = content(format_text("{}/proc/self/cgroup", root_));
    for (std::string_view rest = groups; !rest.empty();) {
      const std::string_view line = next_line(rest);  // "4:cpu,cpuacct:/path"
      const auto names = line.find(':'), path = line.find(':', names + 1);
      if (names == line.npos || path == line.npos) continue;
      const std::string_view list = line.substr(names + 1, path - names - 1);
      if (is_second ? list.empty() : lists_cpu(list)) group = line.substr(path + 1);
    }
    if (mounted != "/" && (group == mounted || group.starts_with(format_text("{}/", mounted))))
      group.erase(0, mounted.size());
    if (group.find("/..") != group.npos) group.clear();  // outside of the namespace
    while (true) {
      const std::string folder = format_text("{}{}", point, group);
      if (is_second) {
        const std::string max = content(format_text("{}/cpu.max", folder));
        add_quota(word(first_line(max), 0), word(first_line(max), 1), folder);
      } else {
        const std::string quota = content(format_text("{}/cpu.cfs_quota_us", folder)),
                          period = content(format_text("{}/cpu.cfs_period_us", folder));
        add_quota(first_line(quota), first_line(period), folder);
      }
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
    struct stat status{};
    ::stat(folder.c_str(), &status);
    found_ = CpuQuota{rounded, status.st_ino};
  }
  /// The number in `digits`; 0 for "max", "-1" and text that is not a number.
  static double number(std::string_view digits) {
    double value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return 0;
      value = 10 * value + (c - '0');
    }
    return value;
  }

  std::string root_;
  std::optional<CpuQuota> found_;
};

std::optional<CpuQuota> read_cpu_quota(const std::string& root) {
  return CpuQuotaReader(root).read();
}

}  // namespace lockstep::detail
