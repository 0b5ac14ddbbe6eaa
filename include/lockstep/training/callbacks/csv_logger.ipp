#pragma once

#include "lockstep/training/callbacks/csv_logger.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/files/file_status.hpp"
#include "lockstep/files/input_file.hpp"
#include "lockstep/training/callbacks/csv_log_text.hpp"
#include "lockstep/training/callbacks/fenced_callback.hpp"

namespace lockstep::detail {

class CSVLoggerHooks final : public FencedCallback {
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
    has_warned_ = false;
    earlier_bytes_ = 0;
    if (params().rank == 0) return open(appends());
    if (!appends()) return;
    try {  // each process may become the chief
      earlier_bytes_ = static_cast<::off_t>(existing().completed());
    } catch (const Error&) {  // not the chief's file
    }
  }

  /// Continues the file of a chief that was lost. A job whose workers do not share it goes on.
  void on_workers_change(const WorkersChange& change) override {
    if (file_ >= 0 || !change.is_chief) return;
    const ::off_t earlier = earlier_bytes_;
    try {
      open(true);
      earlier_bytes_ = earlier;
      remove_lines_from(change.epoch);
    } catch (const Error& e) {
      log(LogLevel::warning, e.what());
      close();
    }
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    if (columns_.empty()) choose_columns(logs);  // all do, since each may become the chief
    control().check_membership();
    if (file_ < 0) return;
    warn_of_values_without_column(epoch, logs);
    std::string lines;
    if (!std::exchange(has_header_, true)) {
      lines = quoted("epoch");
      for (const std::string& name : columns_) lines += o_.separator + quoted(name);
      lines += line_end_;
    }
    lines += quoted(std::to_string(epoch));
    for (const std::string& name : columns_) {
      const auto value = logs.get(name);
      lines += o_.separator + quoted(value ? python_number(*value) : "NA");
    }
    write(lines + line_end_);
  }

  void on_train_end(const Logs&) override { close(); }

  bool may_log(std::string_view) const override { return false; }
  std::string_view state_name() const override { return "CSVLogger"; }
  std::string described_writes() const override { return "CSVLogger"; }
  void save_state(CallbackState& state) const override {
    if (file_ >= 0) state.set("bytes", static_cast<double>(::lseek(file_, 0, SEEK_END)));
    if (earlier_bytes_ > 0) state.set("earlier bytes", static_cast<double>(earlier_bytes_));
    std::string names;
    for (const std::string& name : columns_) names.append(name).push_back('\0');
    const auto bytes = std::as_bytes(std::span(names));
    if (!names.empty()) state.set("columns", std::vector(bytes.begin(), bytes.end()));
  }
  /// Removes the lines of epochs after the checkpoint: they will be logged again. The columns are
  /// those of the file, or of the state if the file has no header.
  void load_state(const CallbackState& state) override {
    earlier_bytes_ =
        state.contains("earlier bytes") ? static_cast<::off_t>(state.count("earlier bytes")) : 0;
    if (file_ >= 0 && state.contains("bytes")) truncate_to_line(state.count("bytes"));
    if (has_header_) return;
    columns_.clear();
    if (!state.contains("columns")) return;
    std::string name;
    for (const std::byte c : state.bytes("columns")) {
      if (c != std::byte{0})
        name += static_cast<char>(c);
      else
        columns_.push_back(std::exchange(name, {}));
    }
  }

 private:
  bool appends() const { return o_.append || params().resumed; }

  /// \throws FileError; UsageError if `appends` and the file is not a log of this fit.
  void open(bool appends) {
    reserve_standard_streams();
    const FileKind kind = file_status(o_.filename).kind;
    if (kind == FileKind::regular && names_open_file(o_.filename))
      throw FileError(o_.filename,
                      "it stands for a file that this process has open, and both would write over "
                      "each other's lines; give the name of a file");
    // A device or FIFO cannot be read back.
    const bool is_file = kind == FileKind::regular || kind == FileKind::missing;
    const bool reads = appends && is_file;
    if (!appends) check_overwritten();
    const CsvLogText before = reads ? existing() : CsvLogText{};
    const int access = is_file ? O_RDWR : O_WRONLY;
    const int how = access | O_CREAT | O_CLOEXEC | (appends ? O_APPEND : O_TRUNC);
    file_ = ::open(o_.filename.c_str(), how, 0666);
    if (file_ < 0) fail("cannot be opened for writing");
    line_end_ = before.line_end;
    has_header_ = !before.header.empty();
    if (!reads) return;
    if (::ftruncate(file_, static_cast<::off_t>(before.end)) != 0) fail("cannot be truncated");
    if (!before.torn.empty())
      log(LogLevel::warning,
          format_text("CSVLogger: the last line of {} is incomplete and was removed: {}",
                      o_.filename, quote(before.torn)));
    write(before.missing_end);
    earlier_bytes_ = static_cast<::off_t>(before.completed());
    if (has_header_) columns_.assign(before.header.begin() + 1, before.header.end());
  }
  /// The file that is to be continued. \throws FileError; UsageError if it has another header.
  CsvLogText existing() const {
    CsvLogText log;
    if (file_status(o_.filename).kind != FileKind::regular) return log;
    InputFile file(o_.filename);
    constexpr std::uint64_t limit = std::uint64_t{1} << 28;
    if (file.size() > limit)
      throw FileError(o_.filename,
                      "it has {} bytes and a log of epochs at most {}; choose another file for "
                      "CSVLogger",
                      file.size(), limit);
    const auto bytes = file.next(static_cast<std::size_t>(file.size()));
    log = read_csv_log({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                       o_.separator.front());
    if (log.header.empty()) return log;
    std::string missing, found;
    for (const std::string& name : log.header) add_item(found, ", ", name);
    for (const std::string& name : names_of_fit())
      if (std::find(log.header.begin(), log.header.end(), name) == log.header.end())
        add_item(missing, ", ", name);
    if (log.is_header_torn && std::string_view("epoch").starts_with(log.header.front())) return {};
    if (log.header.front() == "epoch" && missing.empty()) return log;
    const char* const remedy = o_.append
                                   ? "choose another file, or overwrite this one (.append = false)"
                                   : "choose another file, or move this one";
    if (log.header.front() != "epoch")
      throw UsageError(
          "CSVLogger: {} cannot be continued, since its first line is {} instead of a header "
          "that begins with 'epoch{}'; {}",
          o_.filename, quote(found), o_.separator, remedy);
    throw UsageError(
        "CSVLogger: {} cannot be continued, since it has the columns {} and none for {}, which "
        "fit logs; {}",
        o_.filename, found, missing, remedy);
  }
  /// A folder that comes from elsewhere may have a link here: through one, only a log is overwritten.
  void check_overwritten() const {
    struct ::stat facts{};
    if (::lstat(o_.filename.c_str(), &facts) != 0 || !S_ISLNK(facts.st_mode)) return;
    if (file_status(o_.filename).kind != FileKind::regular) return;
    InputFile file(o_.filename);
    const auto bytes = file.next(static_cast<std::size_t>(std::min<std::uint64_t>(8, file.size())));
    const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!begin.empty() && begin.find("epoch") == begin.npos)
      throw FileError(o_.filename,
                      "it is a symbolic link to a file that is not a log; remove the link, or "
                      "choose another file for CSVLogger");
  }
  /// The names that each fit logs at least.
  std::vector<std::string> names_of_fit() const {
    std::vector<std::string> names = params().metrics;
    if (params().has_validation)
      for (const std::string& metric : params().metrics) names.push_back("val_" + metric);
    return names;
  }
  std::string text() {
    std::string text(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
    if (::pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      fail("cannot be read");
    return text;
  }
  void truncate(std::size_t end) {
    if (::ftruncate(file_, static_cast<::off_t>(end)) != 0) fail("cannot be truncated");
    has_header_ = has_header_ && end > 0;
  }
  /// Removes what follows the line that ends at `bytes` or, in a file that was edited, before it.
  void truncate_to_line(std::uint64_t bytes) {
    struct ::stat facts{};
    if (::fstat(file_, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        static_cast<std::uint64_t>(facts.st_size) <= bytes)
      return;
    const std::size_t line = text().substr(0, static_cast<std::size_t>(bytes)).rfind('\n');
    truncate(line == std::string::npos ? 0 : line + 1);
  }
  /// Removes the lines at the end of the file of `epoch` and later ones, which will be logged again,
  /// except those of earlier runs.
  void remove_lines_from(int epoch) {
    const std::string text = this->text();
    const auto earlier = std::min(text.size(), static_cast<std::size_t>(earlier_bytes_));
    std::size_t end = text.rfind('\n');
    end = std::max(earlier, end == text.npos ? 0 : end + 1);
    while (end > earlier) {
      const std::size_t before = end > 1 ? text.rfind('\n', end - 2) : text.npos;
      const std::size_t first = before == text.npos ? 0 : before + 1;
      const auto number = whole_number<unsigned>(std::string_view(text).substr(
          first, text.find_first_of(o_.separator + "\r\n", first) - first));
      if (!number || *number < static_cast<unsigned>(epoch)) break;
      end = std::max(earlier, first);
    }
    if (end < text.size()) truncate(end);
  }
  void choose_columns(const Logs& logs) {
    columns_ = names_of_fit();
    for (const auto& [name, value] : logs) columns_.push_back(name);
    std::sort(columns_.begin(), columns_.end());
    columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
  }
  void warn_of_values_without_column(int epoch, const Logs& logs) {
    std::string dropped;
    for (const auto& [name, value] : logs)
      if (std::find(columns_.begin(), columns_.end(), name) == columns_.end())
        add_item(dropped, ", ", name);
    if (dropped.empty() || std::exchange(has_warned_, true)) return;
    log(LogLevel::warning,
        format_text("CSVLogger: {} has no column for {}, logged in epoch {}, since columns are "
                    "those of the file's header or of the first epoch; log the value in each "
                    "epoch, from the first one on",
                    o_.filename, dropped, epoch + 1));
  }
  /// Quotes a value only if needed (csv.QUOTE_MINIMAL of Python's csv module).
  std::string quoted(const std::string& value) const {
    if (value.find_first_of(o_.separator + "\"\r\n") == value.npos) return value;
    std::string result = "\"";
    for (const char c : value) result += c == '"' ? std::string(2, c) : std::string(1, c);
    return result + "\"";
  }
  /// Writes all bytes or, as far as the file can be truncated, none.
  void write(std::string_view bytes) {
    const ::off_t before = ::lseek(file_, 0, SEEK_END);
    while (!bytes.empty()) {
      const auto n = ::write(file_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int code = errno;
        static_cast<void>(::ftruncate(file_, before) == 0);
        errno = code;
        fail("cannot be written");
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  [[noreturn]] void fail(std::string_view what) {
    throw FileError(o_.filename, "{} ({}); {}", what, std::generic_category().message(errno),
                    errno == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                   : "check CSVLogger's folder, permissions and disk");
  }
  void close() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    has_header_ = false;
    line_end_ = "\r\n";
  }

  CSVLogger o_;
  int file_ = -1;
  ::off_t earlier_bytes_ = 0;  // of the file before this run, which it continues
  bool has_header_ = false;    // the open file has
  bool has_warned_ = false;
  std::string line_end_;
  std::vector<std::string> columns_;  // after "epoch"; empty until the first epoch has ended
};

}  // namespace lockstep::detail

namespace lockstep {

CSVLogger::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::CSVLoggerHooks>(*this);
}

}  // namespace lockstep
