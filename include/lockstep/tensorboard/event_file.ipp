#pragma once

#include "lockstep/tensorboard/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/tensorboard/event.hpp"
#include "lockstep/tensorboard/record.hpp"

namespace lockstep::detail {

double wall_time() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The time in whole seconds, or more if a file of the folder has this time or a later one: another
/// file of this second, or of a host whose clock is ahead.
[[gnu::cold]] inline long long seconds_after_files_of(const std::string& folder) {
  constexpr std::string_view prefix = "events.out.tfevents.";
  constexpr std::size_t digits = 10;
  constexpr long long most = 9'999'999'999;
  auto seconds = static_cast<long long>(wall_time());
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.starts_with(prefix) || name.size() <= prefix.size() + digits) continue;
    const char* const begin = name.data() + prefix.size();
    long long other = 0;
    const auto [end, code] = std::from_chars(begin, begin + digits, other);
    if (code == std::errc() && end == begin + digits && other < most)
      seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

EventFile::EventFile(const std::string& folder, double flush_seconds, std::size_t max_queue)
    : flush_seconds_(flush_seconds), max_queue_(max_queue) {
  create(folder);
  append_record(pending_, version_event(wall_time()));
  version_ = pending_.size();
  flush();
}

EventFile::~EventFile() {
  flush();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::create(const std::string& folder) {
  reserve_standard_streams();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FileError(folder, "the folder of the event files cannot be created ({}); choose another",
                    error.message());
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {"localhost"};
  std::replace(host.begin(), host.end(), '/', '_');
  static std::atomic<unsigned> counter{0};
  const long long seconds = seconds_after_files_of(folder);
  do {
    path_ = format_text("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, seconds, host.data(),
                        ::getpid(), counter++);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0)
    throw FileError(path_, "cannot be created ({}); choose a folder that you may write to",
                    std::generic_category().message(errno));
}

void EventFile::append(std::string_view event) {
  append_record(pending_, event);
  if (++events_ >= max_queue_ || Clock::now() - flushed_ >= flush_seconds_) flush();
}

void EventFile::flush() {
  flushed_ = Clock::now();
  events_ = 0;
  for (std::size_t done = 0; done < pending_.size() && descriptor_ >= 0;) {
    const ssize_t n = ::write(descriptor_, pending_.data() + done, pending_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(done, errno);
    done += static_cast<std::size_t>(n);
  }
  written_ += pending_.size();
  pending_.clear();
}

void EventFile::fail(std::size_t done, int code) {
  // A reader stops at a record that is not complete.
  if (done > 0 && ::ftruncate(descriptor_, static_cast<off_t>(written_)) != 0)
    ::close(std::exchange(descriptor_, -1));
  pending_.resize(written_ == 0 ? version_ : 0);
  if (std::exchange(has_failed_, true)) return;
  log(LogLevel::warning,
      format_text("tensorboard: {} cannot be written ({}), so events are lost while training goes "
                  "on; {}",
                  path_, std::generic_category().message(code),
                  code == EFBIG ? "raise the limit of file sizes (ulimit -f)" : "free disk space"));
}

}  // namespace lockstep::detail
