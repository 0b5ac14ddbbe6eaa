/// \file
/// The verdict of lockstep-doctor. Invariant: a pure function of the facts, so that each fault can be
/// tested without a machine that has it.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/format_numbers.hpp>

#include "doctor_facts.hpp"

namespace lockstep_doctor {

/// From where on a fact is a problem.
struct Limits {
  double clock = 1;                               ///< seconds between a clock and the chief's
  double bandwidth = 100e6 / 8;                   ///< bytes per second between two machines
  double round_trip = 5e-3;                       ///< seconds
  std::int64_t memory = std::int64_t{512} << 20;  ///< bytes
  std::int64_t disk = std::int64_t{1} << 30;      ///< bytes
  std::int64_t files = 1024;
};

/// A problem makes the doctor fail; a warning does not.
struct Finding {
  bool is_problem = false;
  std::string where, what, remedy;
};

/// "rank 1 (host b)"
inline std::string name_of(const HostFacts& host) {
  return fmt::format("rank {} (host {})", host.rank, host.host);
}

/// "9.4 Mbit/s"
inline std::string bits_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  if (bits >= 1e9) return fmt::format("{:.1f} Gbit/s", bits / 1e9);
  return fmt::format("{:.1f} Mbit/s", bits / 1e6);
}

/// "0.08 ms"
inline std::string time_text(double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); }

inline bool has_feature(const HostFacts& host, std::string_view feature) {
  const std::string words = " " + host.features + " ";
  return words.find(fmt::format(" {} ", feature)) != std::string::npos;
}

/// Collects the findings of one job.
class Diagnosis {
 public:
  Diagnosis(const JobFacts& job, const Limits& limits) : job_(job), limits_(limits) {
    find_silent_hosts();
    find_connections();
    find_clocks();
    find_versions();
    find_secret();
    find_processors();
    find_sizes();
    find_gpus();
    find_files(&HostFacts::data, &HostFacts::data_fault, "data set",
               "copy one data set to all hosts, or give all of them one folder (--data)");
    find_files(&HostFacts::program, &HostFacts::program_fault, "program",
               "install the same build of the program on all hosts");
    std::stable_sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
      return a.is_problem > b.is_problem;
    });
  }

  const std::vector<Finding>& findings() const { return findings_; }

 private:
  void problem(std::string where, std::string what, std::string remedy) {
    findings_.push_back({true, std::move(where), std::move(what), std::move(remedy)});
  }
  void warning(std::string where, std::string what, std::string remedy) {
    findings_.push_back({false, std::move(where), std::move(what), std::move(remedy)});
  }
  const HostFacts& host(std::size_t rank) const { return job_.hosts[rank]; }
  bool are_apart(const PairFacts& pair) const {
    return host(pair.a).machine != host(pair.b).machine;
  }
  /// Whether the bandwidth of the pair is that of the link between two machines: it was measured
  /// alone, as the pair of the first ranks of both. The other pairs share the link.
  bool is_judged(const PairFacts& pair) const {
    const auto is_first = [this](std::size_t rank) {
      return std::none_of(job_.hosts.begin(),
                          job_.hosts.begin() + static_cast<std::ptrdiff_t>(rank),
                          [&](const HostFacts& one) { return one.machine == host(rank).machine; });
    };
    return are_apart(pair) && is_first(pair.a) && is_first(pair.b);
  }
  /// Calls f(host) for the first worker of each machine.
  template <class F>
  void for_each_machine(const F& f) const {
    std::set<std::string> seen;
    for (const HostFacts& one : job_.hosts)
      if (one.fault.empty() && seen.insert(one.machine).second) f(one);
  }
  /// The value that most workers have; the lowest rank's if there are several.
  template <class T>
  T common(T HostFacts::* member) const {
    std::map<T, std::size_t> counts;
    for (const HostFacts& one : job_.hosts)
      if (one.fault.empty()) ++counts[one.*member];
    T result = job_.hosts[0].*member;
    for (const HostFacts& one : job_.hosts)
      if (counts[one.*member] > counts[result]) result = one.*member;
    return result;
  }
  /// The lowest rank that has `value`.
  template <class T>
  const HostFacts& first_with(T HostFacts::* member, const T& value) const {
    return *std::find_if(job_.hosts.begin(), job_.hosts.end(),
                         [&](const HostFacts& one) { return one.*member == value; });
  }

  void find_silent_hosts() {
    for (const HostFacts& one : job_.hosts)
      if (!one.fault.empty())
        problem(name_of(one), one.fault,
                "see whether a file system or a driver hangs there (df, nvidia-smi, dmesg)");
  }

  void find_connections() {
    for (const HostFacts& one : job_.hosts)
      if (!one.listen_fault.empty())
        problem(name_of(one), one.listen_fault,
                "free a port, or set LOCKSTEP_PORT_RANGE to a range with a free one");
    std::vector<double> rates;
    for (const PairFacts& pair : job_.pairs)
      if (pair.is_measured && is_judged(pair)) rates.push_back(std::min(pair.to_a, pair.to_b));
    std::sort(rates.begin(), rates.end());
    const double median = rates.size() >= 3 ? rates[rates.size() / 2] : 0;
    for (const PairFacts& pair : job_.pairs) {
      if (!host(pair.a).listen_fault.empty() || !host(pair.b).listen_fault.empty()) continue;
      const std::string where =
          fmt::format("{} and {}", name_of(host(pair.a)), name_of(host(pair.b)));
      if (!pair.is_measured && pair.round_trip > 0 && pair.fault.ends_with(no_answer)) {
        problem(
            where,
            fmt::format("small messages pass between them, and large ones do not: {}", pair.fault),
            "frames of full size are lost on the way: one of the hosts has a larger MTU than the "
            "network between them; compare `ip link` of both, try `ping -M do -s 8972 HOST` (1472 "
            "for an MTU of 1500), and set one that all pass: ip link set dev eth0 mtu 1500");
        continue;
      }
      if (!pair.is_measured) {
        problem(where, fmt::format("there is no data connection between them: {}", pair.fault),
                "a firewall or a route is in the way: allow TCP between the two hosts in both "
                "directions, or open a range of ports and set LOCKSTEP_PORT_RANGE to it on all "
                "hosts; on hosts with several networks select one by LOCKSTEP_INTERFACE");
        continue;
      }
      if (!is_judged(pair)) continue;
      const double rate = std::min(pair.to_a, pair.to_b);
      const std::string remedy =
          "check the cables, the switch port and the speed that the card has negotiated (ethtool), "
          "limits (tc), other traffic, and whether LOCKSTEP_INTERFACE selects the fast network";
      if (rate < limits_.bandwidth)
        problem(where,
                fmt::format("the link between them transfers {}, less than {}", bits_text(rate),
                            bits_text(limits_.bandwidth)),
                remedy);
      else if (rate < median / 4)
        warning(where,
                fmt::format("the link between them transfers {}; the median of all links is {}",
                            bits_text(rate), bits_text(median)),
                remedy);
      if (pair.round_trip > limits_.round_trip)
        warning(where, fmt::format("a round trip takes {}", time_text(pair.round_trip)),
                "each step waits for several round trips: use hosts of one network, and check "
                "whether they are busy");
    }
  }

  void find_clocks() {
    std::set<std::string> seen{host(0).machine};
    for (const PairFacts& pair : job_.pairs) {
      if (pair.a != 0 || !pair.is_measured || !seen.insert(host(pair.b).machine).second) continue;
      if (std::abs(pair.clock) - pair.clock_error <= limits_.clock) continue;
      problem(name_of(host(pair.b)),
              fmt::format("its clock is {:.1f} s {} than that of the chief", std::abs(pair.clock),
                          pair.clock > 0 ? "later" : "earlier"),
              "start time synchronization on both hosts (chrony, systemd-timesyncd, NTP): logs, "
              "file times and checkpoints on shared storage are misleading until then");
    }
  }

  void find_versions() {
    for (const HostFacts& one : job_.hosts)
      if (one.fault.empty() && host(0).fault.empty() && one.version != host(0).version)
        problem(name_of(one),
                fmt::format("it has lockstep {}, the chief has {}", one.version, host(0).version),
                "install the same version of lockstep on all hosts, and build the program with it");
  }

  void find_secret() {
    const bool is_apart = std::any_of(job_.pairs.begin(), job_.pairs.end(),
                                      [this](const PairFacts& pair) { return are_apart(pair); });
    if (is_apart && host(0).secret == "none")
      warning("the job", "it spans machines, but has no secret (LOCKSTEP_INSECURE)",
              "give all hosts one secret file and set LOCKSTEP_SECRET_FILE, unless no stranger can "
              "reach the network");
  }

  void find_processors() {
    bool any_has_vectors = false, any_has_512 = false;
    for (const HostFacts& one : job_.hosts) {
      any_has_vectors = any_has_vectors || has_feature(one, "avx2") || has_feature(one, "asimd");
      any_has_512 = any_has_512 || has_feature(one, "avx512f");
    }
    for_each_machine([&](const HostFacts& one) {
      const bool has_vectors =
          (has_feature(one, "avx2") && has_feature(one, "fma")) || has_feature(one, "asimd");
      if (!has_vectors && any_has_vectors)
        problem(
            name_of(one),
            fmt::format("its processor ({}) lacks AVX2 or FMA, which other hosts have", one.cpu),
            "replace the host, or expose the features to its virtual machine (CPU model "
            "\"host\"): its steps take several times as long, and all workers wait for it");
      else if (!has_vectors)
        warning(name_of(one), fmt::format("its processor ({}) lacks AVX2 or FMA", one.cpu),
                "training works, but steps take several times as long");
      else if (any_has_512 && !has_feature(one, "avx512f"))
        warning(name_of(one), "its processor lacks AVX-512, which other hosts have",
                "results may differ in the last bits from a job on other hosts, and the slowest "
                "host determines the time of a step");
      const std::int64_t cores = common(&HostFacts::cores);
      if (one.cores < cores)
        warning(name_of(one), fmt::format("it may use {} cores, most workers {}", one.cores, cores),
                "the slowest worker determines the time of a step: check affinity (taskset, "
                "srun --cpus-per-task) and quotas of containers");
    });
  }

  void find_sizes() {
    using lockstep::detail::format_bytes;
    for_each_machine([&](const HostFacts& one) {
      if (one.memory >= 0 && one.memory < limits_.memory)
        problem(name_of(one),
                fmt::format("{} of memory is available",
                            format_bytes(static_cast<std::uint64_t>(one.memory))),
                "end other programs, or raise the limit of the container");
      if (one.files >= 0 && one.files < limits_.files)
        warning(name_of(one), fmt::format("a process may open {} files", one.files),
                "raise the limit (ulimit -Hn, LimitNOFILE= of a service)");
    });
    std::set<std::string> seen;
    for (const HostFacts& one : job_.hosts) {
      if (!seen.insert(one.machine + '\n' + one.folder).second) continue;
      const std::string remedy =
          "free space, or save elsewhere: checkpoints and weights are written there";
      if (!one.disk_fault.empty())
        problem(name_of(one), fmt::format("{} cannot be written: {}", one.folder, one.disk_fault),
                remedy);
      else if (one.disk >= 0 && one.disk < limits_.disk)
        problem(name_of(one),
                fmt::format("the disk of {} is full: {} is free, less than {}", one.folder,
                            format_bytes(static_cast<std::uint64_t>(one.disk)),
                            format_bytes(static_cast<std::uint64_t>(limits_.disk))),
                remedy);
    }
    for (const HostFacts& one : job_.hosts)
      if (!one.votes_fault.empty() && seen.insert(one.machine + '\n' + one.votes_fault).second)
        problem(name_of(one), one.votes_fault,
                "an elastic job keeps its votes there: a folder on a file system with locks, the "
                "same for all workers of this user on a machine");
  }

  void find_gpus() {
    const std::string gpus = common(&HostFacts::gpus), driver = common(&HostFacts::driver);
    for_each_machine([&](const HostFacts& one) {
      if (!one.gpu_fault.empty())
        problem(name_of(one), fmt::format("nvidia-smi failed: {}", one.gpu_fault),
                "reload the driver, or restart the host");
      else if (!one.gpu_doubt.empty())
        warning(
            name_of(one), fmt::format("its GPUs are not known: {}", one.gpu_doubt),
            "run nvidia-smi there: a program that is not installed does no harm, one that hangs "
            "needs a restart of the host");
      else if (one.gpus != gpus)
        warning(name_of(one),
                fmt::format("it has {}, most hosts {}", one.gpus.empty() ? "no GPU" : one.gpus,
                            gpus.empty() ? "none" : gpus),
                "the slowest GPU determines the time of a step; a missing one may need a restart "
                "of its host (nvidia-smi, dmesg)");
      else if (one.driver != driver)
        warning(name_of(one),
                fmt::format("it has NVIDIA's driver {}, most hosts {}", one.driver, driver),
                "install the same driver on all hosts");
    });
  }

  /// Compares fingerprints.
  void find_files(std::string HostFacts::* member, std::string HostFacts::* fault,
                  std::string_view noun, const std::string& remedy) {
    const std::string most = common(member);
    std::set<std::string> seen;
    for (const HostFacts& one : job_.hosts) {
      if (!seen.insert(one.machine + '\n' + one.*member + '\n' + one.*fault).second) continue;
      if (!(one.*fault).empty())
        problem(name_of(one), fmt::format("its {} cannot be read: {}", noun, one.*fault), remedy);
      else if (member == &HostFacts::data && !one.data_doubt.empty())
        warning(name_of(one), fmt::format("its data set was not compared: {}", one.data_doubt),
                "compare it yourself, or name a smaller folder by --data");
      else if (one.*member != most && !(most.empty() || (one.*member).empty()))
        problem(name_of(one),
                fmt::format("its {} ({}) is another one than that of {} ({}){}", noun, one.*member,
                            name_of(first_with(member, most)), most,
                            member == &HostFacts::data ? difference(first_with(member, most), one)
                                                       : std::string()),
                remedy);
    }
  }

  /// The first file that two data sets do not have in common.
  static std::string difference(const HostFacts& common, const HostFacts& other) {
    const auto a = lines_of(common.data_list), b = lines_of(other.data_list);
    const auto file = [](std::string_view line) {
      return line.substr(0, line.rfind(' ', line.rfind(' ') - 1));
    };
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (i >= b.size() || (i < a.size() && file(a[i]) < file(b[i])))
        return fmt::format("; it lacks {}", file(a[i]));
      if (i >= a.size() || file(b[i]) < file(a[i]))
        return fmt::format("; only it has {}", file(b[i]));
      if (a[i] != b[i]) return fmt::format("; {} differs", file(a[i]));
    }
    return "";
  }

  const JobFacts& job_;
  const Limits& limits_;
  std::vector<Finding> findings_;
};

/// All findings, problems first.
inline std::vector<Finding> diagnose(const JobFacts& job, const Limits& limits = {}) {
  return Diagnosis(job, limits).findings();
}

/// The remedy for a join that failed with this message; "" if none is known.
inline std::string join_remedy(std::string_view message) {
  struct Row {
    std::string_view part, remedy;
  };
  // The first row whose part occurs.
  static constexpr Row rows[] = {
      {"lockstep's version", "install the same version of lockstep on all hosts"},
      {"same secret",
       "copy one secret file to all hosts (openssl rand -hex 32), and set LOCKSTEP_SECRET_FILE to it"},
      {"prove that it has the job's secret",
       "copy one secret file to all hosts (openssl rand -hex 32), and set LOCKSTEP_SECRET_FILE to it"},
      {"is in use", "stop the other program (ss -ltnp), or give the chief another port"},
      {"has not been resolved", "correct the name, or add it to DNS or /etc/hosts"},
      {"connection refused",
       "nothing listens there: start rank 0 on that host, or correct its address and port"},
      {"no answer",
       "a firewall drops the packets, or the host is down: open the chief's TCP port on its host for "
       "all hosts, and check the address (ping)"},
      {"No route to host",
       "the host is down, or a firewall rejects: open the chief's TCP port on its host, and check the "
       "routes (ip route get)"},
      {"Network is unreachable", "this host has no route to that address: check it (ip route get)"},
      {"did not join",
       "see what that rank reports; if it reports nothing it does not run, or cannot reach the chief's "
       "port through a firewall"},
  };
  for (const Row& row : rows)
    if (message.find(row.part) != std::string_view::npos) return std::string(row.remedy);
  return "";
}

}  // namespace lockstep_doctor
