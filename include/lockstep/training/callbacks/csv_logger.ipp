#pragma once

#include "lockstep/training/callbacks/csv_logger.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/standard_streams.hpp"

namespace lockstep::detail {

class CSVLoggerHooks final : public Callback {
 public:
  explicit CSVLoggerHooks(CSVLogger options) : o_(std::move(options)) {
    if (o_.separator.size() != 1 || o_.separator.find_first_of("\"\r\n") != std::string::npos)
      throw UsageError("CSVLogger: separator is '{}'; it must be one character, such as ',' or ';'",
                       o_.separator);
  }
  CSVLoggerHooks(const CSVLoggerHooks&) = delete;
  CSVLoggerHooks& operator=(const CSVLoggerHooks&) = delete;
  ~CSVLoggerHooks() override { close(); }

  void on_train_begin(const Logs&) override {
    close();
    columns_.clear();
    first_bytes_ = 0;
    const bool appends = o_.append || params().resumed;
    struct ::stat facts{};  // of all processes, since each may become the chief
    earlier_bytes_ = appends && ::stat(o_.filename.c_str(), &facts) == 0 ? facts.st_size : 0;
    if (params().rank == 0) open(O_WRONLY, appends);
  }

  /// Continues the file of a chief that was lost. A job whose workers do not share it goes on.
  void on_workers_change(const WorkersChange& change) override {
    if (file_ >= 0 || !change.is_chief) return;
    try {
      open(O_RDWR, true);
      remove_lines_from(change.epoch);
    } catch (const FileError& e) {
      log(LogLevel::warning, e.what());
      close();
    }
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    if (columns_.empty()) choose_columns(logs);  // all do, since each may become the chief
    if (file_ < 0) return;
    std::string lines;
    if (!std::exchange(has_header_, true)) {
      lines = quoted("epoch");
      for (const std::string& name : columns_) lines += o_.separator + quoted(name);
      lines += "\r\n";
    }
    lines += quoted(std::to_string(epoch));
    for (const std::string& name : columns_) {
      const auto value = logs.get(name);
      lines += o_.separator + quoted(value ? python_number(*value) : "NA");
    }
    write(lines + "\r\n");
  }

  void on_train_end(const Logs&) override { close(); }

  std::string_view state_name() const override { return "CSVLogger"; }
  void save_state(CallbackState& state) const override {
    if (file_ >= 0) state.set("bytes", static_cast<double>(::lseek(file_, 0, SEEK_END)));
    if (earlier_bytes_ > 0) state.set("earlier bytes", static_cast<double>(earlier_bytes_));
  }
  /// Removes the lines of epochs after the checkpoint: they will be logged again.
  void load_state(const CallbackState& state) override {
    earlier_bytes_ =
        state.contains("earlier bytes") ? static_cast<::off_t>(state.count("earlier bytes")) : 0;
    if (file_ < 0 || !state.contains("bytes")) return;
    const auto bytes = static_cast<::off_t>(state.count("bytes"));
    if (::lseek(file_, 0, SEEK_END) > bytes && ::ftruncate(file_, bytes) != 0)
      fail("cannot be truncated");
    has_header_ = has_header_ && bytes > 0;
  }

 private:
  void open(int access, bool appends) {
    reserve_standard_streams();
    const int how = access | O_CREAT | O_CLOEXEC | (appends ? O_APPEND : O_TRUNC);
    file_ = ::open(o_.filename.c_str(), how, 0666);
    if (file_ < 0) fail("cannot be opened for writing");
    first_bytes_ = appends ? ::lseek(file_, 0, SEEK_END) : 0;
    has_header_ = first_bytes_ > 0;
  }
  /// Removes the lines at the end of the file of `epoch` and later ones, which will be logged again,
  /// and an incomplete line, except those of earlier runs.
  void remove_lines_from(int epoch) {
    std::string text(static_cast<std::size_t>(first_bytes_), '\0');
    if (::pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      fail("cannot be read");
    const auto earlier = std::min(text.size(), static_cast<std::size_t>(earlier_bytes_));
    std::size_t end = text.rfind("\r\n");
    end = std::max(earlier, end == text.npos ? 0 : end + 2);
    while (end > earlier) {
      const std::size_t before = end > 2 ? text.rfind("\r\n", end - 3) : text.npos;
      const std::size_t first = before == text.npos ? 0 : before + 2;
      const auto number = whole_number<unsigned>(std::string_view(text).substr(
          first, text.find_first_of(o_.separator + "\r", first) - first));
      if (!number || *number < static_cast<unsigned>(epoch)) break;
      end = std::max(earlier, first);
    }
    if (end < text.size() && ::ftruncate(file_, static_cast<::off_t>(end)) != 0)
      fail("cannot be truncated");
    has_header_ = end > 0;
  }
  void choose_columns(const Logs& logs) {
    for (const auto& [name, value] : logs) columns_.push_back(name);
    std::sort(columns_.begin(), columns_.end());
    const bool has_validation =
        std::any_of(columns_.begin(), columns_.end(),
                    [](const std::string& name) { return name.starts_with("val_"); });
    const std::size_t count = columns_.size();
    for (std::size_t i = 0; i < count && !has_validation; ++i)
      columns_.push_back("val_" + columns_[i]);
  }
  /// Quotes a value only if needed (csv.QUOTE_MINIMAL of Python's csv module).
  std::string quoted(const std::string& value) const {
    if (value.find_first_of(o_.separator + "\"\r\n") == value.npos) return value;
    std::string result = "\"";
    for (const char c : value) result += c == '"' ? std::string(2, c) : std::string(1, c);
    return result + "\"";
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ::write(file_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be written");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  [[noreturn]] void fail(std::string_view what) {
    throw FileError(o_.filename, "{} ({}); check CSVLogger's folder, permissions and disk", what,
                    std::generic_category().message(errno));
  }
  void close() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

  CSVLogger o_;
  int file_ = -1;
  ::off_t first_bytes_ = 0;    // of the file when it was opened
  ::off_t earlier_bytes_ = 0;  // of the file before this run, which it continues
  bool has_header_ = false;
  std::vector<std::string> columns_;
};

}  // namespace lockstep::detail

namespace lockstep {

CSVLogger::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::CSVLoggerHooks>(*this);
}

}  // namespace lockstep
