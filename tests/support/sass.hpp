/// \file
/// Machine code (SASS) of kernels as printed by nvdisasm, and the number of instructions that a
/// thread executes. Invariants: each instruction counts as one; paths follow branches, not calls.
///
/// \code
///   index   code                          successors
///     0     ISETP.GE.AND P0, ...          1
///     1     @P0 EXIT                      2
///     2     LDG.E.U16 R4, ...   <-+       3     loop [2, 5)
///     3     @P1 BRA .L_2          |       5, 4
///     4     @P2 BRA .L_1        --+       5
///     5     EXIT
/// \endcode
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace testing {

struct SassInstruction {
  std::string predicate, opcode, operands;
  std::size_t target = 0;  ///< index of the branch target

  bool is(std::string_view what) const {
    return opcode == what || (opcode.starts_with(what) && opcode[what.size()] == '.');
  }
  bool branches() const { return is("BRA"); }
  /// Whether control never continues with the next instruction.
  bool leaves() const {
    const bool always = predicate.empty() && !operands.starts_with('P') &&
                        !operands.starts_with("!P") && !operands.starts_with("UP");
    return always && (branches() || opcode == "EXIT" || is("RET"));
  }
  /// Bytes read from global memory.
  int reads() const {
    if (!is("LDG")) return 0;
    const auto has = [&](const char* width) {
      return (opcode + ".").find(std::string(".") + width + ".") != std::string::npos;
    };
    return has("U8") || has("S8")     ? 1
           : has("U16") || has("S16") ? 2
           : has("64")                ? 8
           : has("128")               ? 16
                                      : 4;
  }
};

/// A path through the code: among those with the most reads, the longest.
struct SassPath {
  std::size_t reads = 0, instructions = 0;
  std::size_t ahead = 0;  ///< reads before the first write to global memory
  bool writes = false;
  double per_element(std::size_t reads_per_element) const {
    return double(instructions * reads_per_element) / double(reads);
  }
};

/// The code of one entry point.
class SassKernel {
 public:
  std::vector<SassInstruction> code;

  std::size_t count(std::string_view opcode) const {
    return static_cast<std::size_t>(std::count_if(
        code.begin(), code.end(), [&](const SassInstruction& i) { return i.is(opcode); }));
  }
  /// Index of the first `opcode` at or after `from`; code.size() if there is none.
  std::size_t find(std::string_view opcode, std::size_t from = 0) const {
    while (from < code.size() && !code[from].is(opcode)) ++from;
    return from;
  }
  std::size_t find_back(std::string_view opcode, std::size_t from) const {
    while (from-- > 0)
      if (code[from].is(opcode)) return from;
    return code.size();
  }
  /// One iteration of the loop with the most reads of `bytes` bytes.
  SassPath main_loop(int bytes) const {
    SassPath best;
    for (std::size_t last = 0; last < code.size(); ++last) {
      if (!code[last].branches() || code[last].target > last) continue;
      const std::optional<SassPath> one = path(code[last].target, last, bytes);
      if (one && better(*one, best)) best = *one;
    }
    return best;
  }
  /// Minimum number of instructions of a thread that makes `reads` reads of `bytes` bytes, with at
  /// most one iteration of each loop.
  std::optional<std::size_t> shortest(int bytes, std::size_t reads) const {
    // to[i][n]: the shortest path to instruction i with n reads.
    std::vector<std::vector<std::size_t>> to(code.size() + 1,
                                             std::vector<std::size_t>(reads + 1, never));
    std::size_t best = never;
    to[0][0] = 0;
    for (std::size_t i = 0; i < code.size(); ++i) {
      const bool counts = code[i].reads() == bytes;
      for (std::size_t n = reads + 1; n-- > 0;) {
        if (to[i][n] == never) continue;
        const std::size_t after = std::min(reads, n + counts), length = to[i][n] + 1;
        if (code[i].opcode == "EXIT" && after == reads) best = std::min(best, length);
        for (const std::size_t next : successors(i))
          if (next > i) to[next][after] = std::min(to[next][after], length);
      }
    }
    if (best == never) return std::nullopt;
    return best;
  }
  /// Whether a path leads from `first` to `last` without executing an unconditional `without`.
  bool can_pass(std::size_t first, std::size_t last, std::string_view without) const {
    std::vector<bool> reached(code.size() + 1);
    reached[first] = true;
    for (std::size_t i = first; i < last; ++i) {
      if (!reached[i] || (code[i].is(without) && code[i].predicate.empty())) continue;
      for (const std::size_t next : successors(i)) reached[next] = reached[next] || next > i;
    }
    return reached[last];
  }

 private:
  static constexpr std::size_t never = static_cast<std::size_t>(-1);

  static bool better(const SassPath& a, const SassPath& b) {
    return a.reads != b.reads ? a.reads > b.reads : a.instructions > b.instructions;
  }
  std::vector<std::size_t> successors(std::size_t i) const {
    std::vector<std::size_t> all;
    if (code[i].branches()) all.push_back(code[i].target);
    if (!code[i].leaves()) all.push_back(i + 1);
    return all;
  }
  /// The best forward path from `first` to `last`; none if there is no path.
  std::optional<SassPath> path(std::size_t first, std::size_t last, int bytes) const {
    std::vector<std::optional<SassPath>> to(last + 2);
    to[first] = SassPath{};
    for (std::size_t i = first; i <= last; ++i) {
      if (!to[i]) continue;
      SassPath here = *to[i];
      ++here.instructions;
      here.writes = here.writes || code[i].is("STG");
      here.reads += code[i].reads() == bytes;
      if (!here.writes) here.ahead = here.reads;
      if (i == last) return here;
      for (const std::size_t next : successors(i))
        if (next > i && next <= last && (!to[next] || better(here, *to[next]))) to[next] = here;
    }
    return std::nullopt;
  }
};

/// Path of nvdisasm: $LOCKSTEP_NVDISASM, else in the toolkit, else in $PATH; empty if not found.
inline std::string nvdisasm() {
  if (const char* const named = std::getenv("LOCKSTEP_NVDISASM")) return named;
  std::vector<std::string> folders;
  if (const char* const home = std::getenv("CUDA_HOME"))
    folders.push_back(home + std::string("/bin"));
  folders.push_back("/usr/local/cuda/bin");
  std::istringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) folders.push_back(folder);
  for (const std::string& folder : folders)
    if (access((folder + "/nvdisasm").c_str(), X_OK) == 0) return folder + "/nvdisasm";
  return "";
}

/// The entry points of a cubin. \throws std::runtime_error if nvdisasm fails.
inline std::map<std::string, SassKernel> disassemble(const std::string& cubin) {
  char path[] = "/tmp/lockstep-sass-XXXXXX";
  const int file = mkstemp(path);
  const bool written =
      file >= 0 && write(file, cubin.data(), cubin.size()) == static_cast<ssize_t>(cubin.size());
  if (file >= 0) close(file);
  FILE* const pipe = popen(("'" + nvdisasm() + "' -c " + path + " 2>&1").c_str(), "r");
  std::string printed;
  std::array<char, 4096> some{};
  while (const std::size_t n = std::fread(some.data(), 1, some.size(), pipe))
    printed.append(some.data(), n);
  const int status = pclose(pipe);
  unlink(path);
  if (!written || status != 0) throw std::runtime_error("nvdisasm: " + printed);

  static const std::regex entry(R"(\.text\.(\w+):)"), label(R"((\.L_\w+):)"),
      instruction(R"(\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;.*)"),
      place(R"(`\((\.L_\w+)\))");
  std::map<std::string, SassKernel> all;
  std::map<std::string, std::size_t> labels;
  SassKernel* kernel = nullptr;
  std::istringstream lines(printed);
  std::smatch m;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, m, entry))
      kernel = &all[m[1]];
    else if (kernel == nullptr)
      continue;
    else if (std::regex_match(line, m, label))
      labels[m[1]] = kernel->code.size();
    else if (std::regex_match(line, m, instruction))
      kernel->code.push_back({m[1], m[2], m[3]});
  }
  for (auto& [name, one] : all)
    for (SassInstruction& i : one.code)
      if (i.branches()) {
        if (!std::regex_search(i.operands, m, place))
          throw std::runtime_error("branch without a label in " + name + ": " + i.operands);
        i.target = labels.at(m[1]);
      }
  return all;
}

}  // namespace testing
