/// \file
/// The facts of lockstep-doctor on the hosts and the connections of a job, and their text form, which
/// travels through the store of the rendezvous. Invariant: a text that a peer sent never throws; a
/// field that it lacks keeps its default.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep_doctor {

/// A worker's host, as the worker sees it. Sizes in bytes; -1: unknown.
struct HostFacts {
  std::int64_t rank = 0;
  std::string host, address;  ///< the host's name; its address for data
  std::string machine;        ///< equal for workers on one machine
  std::string version, cpu;   ///< of lockstep; the model of the processor
  std::string features;       ///< of avx2, fma, avx512f, ... those that the processor has
  std::int64_t cores = 0;     ///< that the worker may use, by affinity and quota
  std::int64_t machine_cores = 0;
  std::int64_t memory = -1;      ///< that the worker may still allocate
  std::string folder;            ///< where files are to be saved
  std::int64_t disk = -1;        ///< free there
  std::string disk_fault;        ///< why no file can be written there
  std::string votes_fault;       ///< why the worker cannot vote in an elastic job
  std::int64_t files = -1;       ///< the limit of open files
  std::string gpus, driver;      ///< "2 x NVIDIA H100"; the version of NVIDIA's driver
  std::string gpu_fault;         ///< why nvidia-smi failed
  std::string gpu_doubt;         ///< why its answer is not known
  std::string data, data_fault;  ///< fingerprint of the data set, "" if none is checked
  std::string data_doubt;        ///< why it is not known
  std::string data_list;         ///< its first files, as "name size digest", separated by newlines
  std::string program, program_fault;  ///< fingerprint of the program, "" if none is checked
  std::string secret;                  ///< "file", "variable" or "none"
  std::string listen_fault;            ///< why no data connections can be accepted
  std::string fault;                   ///< why the other facts are not known
};

/// Calls f(name, member) for each field.
template <class Facts, class F>
void for_each_field(Facts& facts, const F& f) {
  f("rank", facts.rank);
  f("host", facts.host);
  f("address", facts.address);
  f("machine", facts.machine);
  f("version", facts.version);
  f("cpu", facts.cpu);
  f("features", facts.features);
  f("cores", facts.cores);
  f("machine_cores", facts.machine_cores);
  f("memory", facts.memory);
  f("folder", facts.folder);
  f("disk", facts.disk);
  f("disk_fault", facts.disk_fault);
  f("votes_fault", facts.votes_fault);
  f("files", facts.files);
  f("gpus", facts.gpus);
  f("driver", facts.driver);
  f("gpu_fault", facts.gpu_fault);
  f("gpu_doubt", facts.gpu_doubt);
  f("data", facts.data);
  f("data_fault", facts.data_fault);
  f("data_doubt", facts.data_doubt);
  f("data_list", facts.data_list);
  f("program", facts.program);
  f("program_fault", facts.program_fault);
  f("secret", facts.secret);
  f("listen_fault", facts.listen_fault);
  f("fault", facts.fault);
}

/// The end of a pair's fault if its connection was made but did not answer in time.
inline constexpr const char* no_answer = "no answer in time";

/// Two workers, a < b, and the connection between them.
struct PairFacts {
  std::size_t a = 0, b = 0;
  bool is_measured = false;
  std::string fault{};        ///< why not
  double round_trip = 0;      ///< seconds, the median; also if only large messages are lost
  double to_b = 0, to_a = 0;  ///< bytes per second
  double clock = 0;           ///< seconds that b's clock is ahead of a's
  double clock_error = 0;     ///< at most this many seconds
};

/// A whole job.
struct JobFacts {
  std::vector<HostFacts> hosts;  ///< by rank
  std::vector<PairFacts> pairs;  ///< a < b, in order
};

/// Doubles backslashes, and writes a newline as \n.
inline std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') result += "\\\\";
    if (c == '\n') result += "\\n";
    if (c != '\\' && c != '\n') result += c;
  }
  return result;
}

/// The inverse. Other control characters become '?', so that no peer writes to the terminal.
inline std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\' && i + 1 < text.size()) c = text[++i] == 'n' ? '\n' : text[i];
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F;
    result += is_control ? '?' : c;
  }
  return result;
}

/// One line "name value" for each field.
inline std::string encode(const HostFacts& facts) {
  std::string text;
  for_each_field(facts, [&](std::string_view name, const auto& value) {
    text += fmt::format("{} {}\n", name, escaped(fmt::format("{}", value)));
  });
  return text;
}

inline void assign(std::string& field, std::string_view value) { field = unescaped(value); }
inline void assign(std::int64_t& field, std::string_view value) {
  std::from_chars(value.data(), value.data() + value.size(), field);
}

/// The lines of `text`, which end in newlines.
inline std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

inline HostFacts decode(std::string_view text) {
  std::map<std::string_view, std::string_view> values;
  for (const std::string_view line : lines_of(text)) {
    const std::size_t space = std::min(line.find(' '), line.size());
    values[line.substr(0, space)] = line.substr(std::min(space + 1, line.size()));
  }
  HostFacts facts;
  for_each_field(facts, [&](std::string_view name, auto& field) {
    const auto found = values.find(name);
    if (found != values.end()) assign(field, found->second);
  });
  return facts;
}

/// The pairs that one worker has measured: "a b 1 round_trip to_b to_a clock error fault".
inline std::string encode(const std::vector<PairFacts>& pairs) {
  std::string text;
  for (const PairFacts& pair : pairs)
    text += fmt::format("{} {} {} {:.9e} {:.9e} {:.9e} {:.9e} {:.9e} {}\n", pair.a, pair.b,
                        pair.is_measured ? 1 : 0, pair.round_trip, pair.to_b, pair.to_a, pair.clock,
                        pair.clock_error, escaped(pair.fault));
  return text;
}

/// The inverse; drops lines that are malformed or name a rank that is not below `size`.
inline std::vector<PairFacts> decode_pairs(std::string_view text, std::size_t size) {
  std::vector<PairFacts> pairs;
  for (std::string_view line : lines_of(text)) {
    bool is_valid = true;
    const auto next = [&](auto& number) {
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
      is_valid = is_valid && error == std::errc{};
      line.remove_prefix(static_cast<std::size_t>(end - line.data()));
      if (!line.empty()) line.remove_prefix(1);
    };
    PairFacts pair;
    int is_measured = 0;
    next(pair.a);
    next(pair.b);
    next(is_measured);
    for (double* const number :
         {&pair.round_trip, &pair.to_b, &pair.to_a, &pair.clock, &pair.clock_error}) {
      next(*number);
      is_valid = is_valid && std::isfinite(*number);
    }
    pair.is_measured = is_measured == 1;
    pair.fault = unescaped(line);
    if (is_valid && pair.a < pair.b && pair.b < size) pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace lockstep_doctor
