/// \file
/// Compares the all-reduce of a ThreadGroup with the speed of memory, in turn, in one run.
///
/// In the all-reduce of N threads over n floats, each thread owns n/N elements: it reads them in
/// all N buffers, adds, and writes the sums to all N. Before each operation every thread writes its
/// whole buffer, as backward does, so others read it from that thread's caches. Then all start
/// together, each bound to its own core if there are enough (`--unbound`: the system places them).
/// A time is from the first start to the last end. Rows:
///
/// - `memcpy`: the bound. Each thread copies its part of each buffer to the next buffer (the last
///   to the first), 4 KB of each in turn: as many bytes read and written, each cache line fetched
///   once and between the same caches, without additions and waits.
/// - `memcpy, whole`: the same bytes, one whole part after the other, so that the second copy reads
///   the bytes that the first has written. A weaker bound if a part is larger than a core's cache.
/// - `sum alone`: the additions of the all-reduce without its two barriers.
/// - `all-reduce, spins S`: ThreadGroup with `.spins = S`. Its time over `sum alone` is waiting.
///
/// `share` is the median of `memcpy` divided by the row's. A single thread exchanges nothing, so
/// its rows show the clock's overhead.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/collectives/thread_group.hpp>
#include <lockstep/core/slice.hpp>

#include "measure.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  std::vector<std::size_t> threads{1, 2, 4, 8};
  std::vector<std::size_t> sizes{1024, 16384, 347146, 4194304};
  std::vector<int> spins{0, 1000};
  int rounds = 200;
  bool binds = true;
};

class Buffers {
 public:
  Buffers(std::size_t members, std::size_t n) : n_(n), values_(members) {
    for (auto& v : values_) {
      v.resize(n + line);
      const auto address = reinterpret_cast<std::uintptr_t>(v.data()) / sizeof(float);
      data_.push_back(v.data() + (line - address % line) % line);
    }
  }
  void fill(std::size_t r) {
    for (std::size_t i = 0; i < n_; ++i) data_[r][i] = static_cast<float>(r + 1);
  }
  /// Whether buffer r holds the sum of the values that `fill` wrote to all buffers.
  bool is_summed(std::size_t r) const {
    const auto sum = static_cast<float>(data_.size() * (data_.size() + 1) / 2);
    return std::all_of(data_[r], data_[r] + n_, [&](float v) { return v == sum; });
  }
  float* of(std::size_t r) const { return data_[r]; }

  /// The part of thread r, as in ThreadGroup: whole cache lines.
  ls::Slice part(std::size_t r) const {
    const ls::Slice lines = ls::slice_of((n_ + line - 1) / line, data_.size(), r);
    const std::size_t first = lines.first * line, end = std::min(n_, first + lines.count * line);
    return {first, first < end ? end - first : 0};
  }
  void copy(std::size_t first, std::size_t count) const {
    if (data_.size() == 1) return;
    for (std::size_t r = 0; r < data_.size(); ++r)
      std::memcpy(data_[(r + 1) % data_.size()] + first, data_[r] + first, count * sizeof(float));
  }

 private:
  static constexpr std::size_t line = 64 / sizeof(float);
  std::size_t n_;
  std::vector<std::vector<float>> values_;
  std::vector<float*> data_;
};

struct Row {
  std::string name;
  measure::Samples us;
};

/// Measures and prints all rows. \returns false if a sum was wrong.
bool measure_size(const Options& options, std::size_t members, std::size_t n) {
  Buffers buffers(members, n);
  std::vector<Row> rows{{"memcpy", {}}, {"memcpy, whole", {}}, {"sum alone", {}}};
  std::vector<std::unique_ptr<ls::ThreadGroup>> group;
  for (const int spins : options.spins) {
    group.push_back(std::make_unique<ls::ThreadGroup>(
        ls::ThreadGroup::Options{.size = members, .spins = spins}));
    rows.push_back({fmt::format("all-reduce, spins {}", spins), {}});
  }
  std::atomic<bool> is_right = true;
  measure::Together together(members);
  const auto body = [&](std::size_t r) {
    if (options.binds) measure::bind_to_core(r);
    const ls::Slice mine = buffers.part(r);
    const auto row = [&](std::size_t i, const auto& operation) {
      buffers.fill(r);
      together.time(r, rows[i].us, operation);
    };
    for (int round = 0; round < options.rounds; ++round) {
      row(0, [&] {
        constexpr std::size_t block = ls::detail::sum_block;
        for (std::size_t at = 0; at < mine.count; at += block)
          buffers.copy(mine.first + at, std::min(block, mine.count - at));
      });
      row(1, [&] { buffers.copy(mine.first, mine.count); });
      row(2, [&] {
        std::array<float*, ls::ThreadGroup::max_size> parts;
        for (std::size_t m = 0; m < members; ++m) parts[m] = buffers.of(m) + mine.first;
        ls::detail::sum_members(parts.data(), members, mine.count, ls::SumOrder::ranks);
      });
      for (std::size_t g = 0; g < group.size(); ++g) {
        ls::ThreadGroup::Member member(*group[g], r);
        row(3 + g, [&] { member.all_reduce(buffers.of(r), n); });
        if (!buffers.is_summed(r)) is_right = false;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < members; ++r) threads.emplace_back(body, r);
  for (std::thread& t : threads) t.join();

  for (const Row& row : rows)
    fmt::print("{:7} {:9}  {:24} {:10.1f} {:10.1f} {:7.0f} %\n", members, n * sizeof(float),
               row.name, row.us.median(), row.us.min(),
               100 * rows[0].us.median() / row.us.median());
  return is_right;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares the all-reduce of threads with memcpy of as many bytes", "all_reduce");
  app.add_option("--threads", options.threads, "numbers of threads")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option("--floats", options.sizes, "numbers of elements")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 28));
  app.add_option("--spins", options.spins, "polls before a member sleeps")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--rounds", options.rounds, "operations of each kind")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("!--unbound", options.binds, "do not bind the threads to cores");
  CLI11_PARSE(app, argc, argv);

  fmt::print("{}; {} rounds\n", measure::machine(), options.rounds);
  fmt::print("{:>7} {:>9}  {:24} {:>10} {:>10} {:>9}\n", "threads", "bytes", "operation",
             "median us", "min us", "share");
  const measure::Neighbours neighbours;
  for (const std::size_t members : options.threads)
    for (const std::size_t n : options.sizes)
      if (!measure_size(options, members, n)) {
        std::fputs("all_reduce: a sum is wrong\n", stderr);
        return 1;
      }
  fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
}
