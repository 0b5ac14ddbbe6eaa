#pragma once

#include "lockstep/cluster/description/slurm_lists.hpp"

#include <algorithm>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

inline constexpr std::size_t max_slurm_list_bytes = std::size_t{1} << 20;

inline constexpr std::size_t max_slurm_hosts = 1'000'000;

/// Scans a list from left to right. Its errors name the position.
class SlurmScanner {
 public:
  SlurmScanner(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (text.empty()) fail("is empty");
    if (text.size() > max_slurm_list_bytes) fail("is longer than 1 MiB");
  }

  /// Throws ClusterError with `fact` and the position.
  [[noreturn]] void fail(std::string_view fact) const {
    throw ClusterError(
        "{} {} {} at character {}; start the program with srun, or set LOCKSTEP_LAUNCHER", name_,
        quote(text_), fact, at_ + 1);
  }
  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  /// Skips `c` if it is the next character.
  bool consume(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!consume(c)) fail(format_text("lacks a '{}'", std::string_view(&c, 1)));
  }
  void advance() { ++at_; }
  /// The digits from here on; may be empty.
  std::string_view digits() {
    const std::size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  /// The value of `digits`, of which 18 always fit 64 bits.
  std::uint64_t number(std::string_view digits) const {
    const auto value = whole_number<std::uint64_t>(digits);
    if (!value || digits.size() > 18) fail("has no number, or a number of more than 18 digits,");
    return *value;
  }
  std::size_t at() const { return at_; }
  /// The text from `begin` up to here.
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

 private:
  std::string_view text_, name_;
  std::size_t at_ = 0;
};

HostList::HostList(std::string_view text, std::string_view name) {
  SlurmScanner scanner(text, name);
  do items_.push_back(item(scanner));
  while (scanner.consume(','));
  if (!scanner.done()) scanner.fail("has a character that a host name cannot contain");
}

std::string HostList::operator[](std::size_t index) const {
  const auto found = std::upper_bound(items_.begin(), items_.end(), index,
                                      [](std::size_t i, const Item& a) { return i < a.end; });
  index -= found->end - found->count;
  // A mixed-radix number: the part at the right is the lowest digit.
  std::size_t stride = found->count;
  std::string host;
  for (const Part& part : found->parts) {
    if (part.ranges.empty()) {
      host += part.text;
      continue;
    }
    stride /= part.count;
    append(host, part, index / stride);
    index %= stride;
  }
  return host;
}

void HostList::append(std::string& host, const Part& part, std::size_t index) {
  const auto range = std::upper_bound(part.ranges.begin(), part.ranges.end(), index,
                                      [](std::size_t i, const Range& r) { return i < r.end; });
  const std::size_t before = range == part.ranges.begin() ? 0 : std::prev(range)->end;
  const std::string number = std::to_string(range->first + (index - before));
  if (number.size() < range->width) host.append(range->width - number.size(), '0');
  host += number;
}

HostList::Part HostList::brackets(SlurmScanner& scanner, std::size_t& longest) {
  Part part{.count = 0};
  std::size_t widest = 0;
  do {
    const std::string_view low = scanner.digits();
    const std::uint64_t first = scanner.number(low);
    std::string_view high = low;
    if (scanner.consume('-')) high = scanner.digits();
    const std::uint64_t last = scanner.number(high);
    if (last < first) scanner.fail("has a descending range");
    if (last - first >= max_slurm_hosts - part.count) scanner.fail(too_many);
    part.count += static_cast<std::size_t>(last - first) + 1;
    part.ranges.push_back({first, low.size(), part.count});
    widest = std::max({widest, low.size(), high.size()});
  } while (scanner.consume(','));
  scanner.expect(']');
  longest += widest;
  return part;
}

HostList::Item HostList::item(SlurmScanner& scanner) const {
  Item result;
  std::size_t longest = 0;
  while (!scanner.done() && scanner.peek() != ',') {
    if (scanner.consume('[')) {
      result.parts.push_back(brackets(scanner, longest));
      const std::size_t count = result.parts.back().count;
      if (count > max_slurm_hosts / result.count) scanner.fail(too_many);
      result.count *= count;
    } else {
      const std::size_t begin = scanner.at();
      while (is_host(scanner.peek())) scanner.advance();
      if (scanner.at() == begin) scanner.fail("has a character that a host name cannot contain");
      result.parts.push_back({.text = std::string(scanner.since(begin))});
      longest += scanner.at() - begin;
    }
    if (longest > max_host_length) scanner.fail("has a host name of more than 253 characters");
  }
  if (result.parts.empty()) scanner.fail("has an empty entry");
  const std::size_t before = items_.empty() ? 0 : size();
  if (result.count > max_slurm_hosts - before) scanner.fail(too_many);
  result.end = before + result.count;
  return result;
}

bool HostList::is_host(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.';
}

TasksPerNode::TasksPerNode(std::string_view text, std::string_view name) {
  SlurmScanner scanner(text, name);
  do {
    const std::uint64_t tasks = scanner.number(scanner.digits());
    std::uint64_t nodes = 1;
    if (scanner.consume('(')) {
      scanner.expect('x');
      nodes = scanner.number(scanner.digits());
      scanner.expect(')');
    }
    if (nodes == 0) scanner.fail("has a repeat count of 0");
    if (nodes > max_slurm_hosts - this->nodes()) scanner.fail("has more than 1,000,000 nodes");
    if (tasks > (max_slurm_tasks - tasks_) / nodes) scanner.fail("has more than 10^9 tasks");
    tasks_ += static_cast<std::size_t>(tasks * nodes);
    runs_.push_back({static_cast<std::size_t>(tasks), this->nodes() + nodes});
  } while (scanner.consume(','));
  if (!scanner.done()) scanner.fail("has an unexpected character");
}

std::size_t TasksPerNode::operator[](std::size_t node) const {
  return std::upper_bound(runs_.begin(), runs_.end(), node,
                          [](std::size_t n, const Run& run) { return n < run.end; })
      ->tasks;
}

}  // namespace lockstep::detail
