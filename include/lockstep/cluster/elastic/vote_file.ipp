#pragma once

#include "lockstep/cluster/elastic/vote_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/crc32c.hpp"
#include "lockstep/files/atomic_file.hpp"

namespace lockstep::detail {

/// The first bytes of a vote file; the last digit is the version.
inline constexpr std::string_view vote_magic = "lockstep vote 2\n";
inline constexpr std::size_t vote_page = 4096, vote_slot = 60 * 1024;

/// The beginning of a vote file. It lies within one page, which is written as a whole.
struct VoteRecord {
  std::array<char, vote_magic.size()> magic{};
  std::uint32_t slot = 0, size = 0, sum = 0;
  std::uint32_t own_sum = 0;  // of what stands before it

  std::uint32_t sum_before() const { return crc32c(this, offsetof(VoteRecord, own_sum)); }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};

inline VoteRecord vote_record(std::uint32_t slot, std::string_view body) {
  VoteRecord record{.slot = slot,
                    .size = static_cast<std::uint32_t>(body.size()),
                    .sum = crc32c(body.data(), body.size())};
  std::copy(vote_magic.begin(), vote_magic.end(), record.magic.begin());
  record.own_sum = record.sum_before();
  return record;
}

inline std::size_t slot_offset(std::uint32_t slot) { return vote_page + slot * vote_slot; }

/// Overwrites a part of a file and syncs it. \throws FileError
inline void overwrite(const FileDescriptor& file, const std::string& path, std::string_view bytes,
                      std::size_t offset) {
  while (!bytes.empty()) {
    const auto n =
        ::pwrite(file.number(), bytes.data(), bytes.size(), static_cast<::off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw FileError(path, "cannot be written ({})", std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  if (::fdatasync(file.number()) != 0)
    throw FileError(path, "cannot be written ({})", std::strerror(errno));
}

inline constexpr const char* removal_remedy =
    ", so this machine cannot vote any more; exclude it from the cleaning of old files (systemd's "
    "RemoveIPC=yes empties /dev/shm when the last session of its user ends), or set "
    "LOCKSTEP_ELASTIC_DIRECTORY to another folder";

void VoteFile::enter(std::uint64_t run) {
  if (run == run_) return;
  leave();
  folder_ = format_text("{}/{:016x}", machine_.path(), run);
  while (!lock_.is_open()) {  // the last process of an earlier attempt may be removing the folder
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      throw FileError(folder_, "cannot be created ({})", std::strerror(errno));
    lock_ = open_locked(folder_ + "/lock", O_CREAT);
  }
  run_ = run;
  const FileDescriptor held = guard();
  if (held.is_open()) create_votes();
  (void)load();
}

std::optional<Vote> VoteFile::change(const GenerationId& generation,
                                     const std::function<void(Vote&)>& change) {
  if (generation.run != run_) return std::nullopt;
  if (!machine_.is_intact() || !is_same_file(lock_, folder_ + "/lock"))
    throw FileError(folder_, "was removed while its job runs{}", removal_remedy);
  const FileDescriptor held = guard();
  is_blocked_ = !held.is_open();
  if (is_blocked_) return std::nullopt;
  const Stored before = load();
  if (before.number > generation.number) return std::nullopt;
  Stored now{generation.number, {}, before.slot ^ 1};
  if (before.number == generation.number) now.vote = before.vote;
  change(now.vote);
  if (before.number < generation.number || !(now.vote == before.vote)) store(now);
  return now.vote;
}

void VoteFile::create_votes() const {
  struct stat status{};
  if (::fstat(lock_.number(), &status) != 0)
    throw FileError(folder_ + "/lock", "cannot be read ({})", std::strerror(errno));
  const bool existed = status.st_size > 0;
  if (::access(votes().c_str(), F_OK) != 0) {
    if (existed)  // a blank file would forget promises to members that live
      throw FileError(votes(), "was removed while its job runs{}", removal_remedy);
    const std::string body = encoded({});
    std::string file(slot_offset(2), '\0');
    file.replace(0, sizeof(VoteRecord), vote_record(0, body).bytes());
    file.replace(slot_offset(0), body.size(), body);
    AtomicFile draft(votes());
    draft.write(std::string_view(file));
    draft.commit();
  }
  if (!existed && ::pwrite(lock_.number(), "1", 1, 0) != 1)
    throw FileError(folder_ + "/lock", "cannot be written ({})", std::strerror(errno));
}

void VoteFile::leave() {
  if (!lock_.is_open()) return;
  if (is_same_file(lock_, folder_ + "/lock") && lock_alone(lock_)) remove_folder(folder_);
  lock_ = FileDescriptor();
  run_ = 0;
}

std::string VoteFile::encoded(const Stored& stored) const {
  FrameWriter writer(FrameType::agreement);
  writer.number(run_).number(stored.number);
  for (const Ballot& ballot : {stored.vote.promised, stored.vote.accepted})
    writer.number(ballot.round).number(ballot.rank);
  writer.bytes(stored.vote.value);
  return std::move(writer).finish();
}

void VoteFile::store(const Stored& stored) const {
  const std::string body = encoded(stored);
  if (body.size() > vote_slot)
    throw FileError(votes(), "cannot hold a vote of {} bytes; it has room for {}", body.size(),
                    vote_slot);
  const FileDescriptor file(::open(votes().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) throw FileError(votes(), "cannot be opened ({})", std::strerror(errno));
  overwrite(file, votes(), body, slot_offset(stored.slot));
  overwrite(file, votes(), vote_record(stored.slot, body).bytes(), 0);
}

VoteFile::Stored VoteFile::load() const {
  const std::string text = read_small_file(votes());
  VoteRecord record;
  const bool is_whole = text.size() == slot_offset(2);
  if (is_whole) std::memcpy(&record, text.data(), sizeof record);
  const bool is_record = is_whole && record.bytes().starts_with(vote_magic) &&
                         record.own_sum == record.sum_before() && record.slot < 2 &&
                         record.size >= frame_header && record.size <= vote_slot;
  const std::string_view body =
      is_record ? std::string_view(text).substr(slot_offset(record.slot), record.size)
                : std::string_view();
  const bool is_intact = is_record && crc32c(body.data(), body.size()) == record.sum;
  FrameReader reader(is_intact ? body.substr(frame_header) : std::string_view());
  Stored stored{.slot = record.slot};
  const auto run = reader.number<std::uint64_t>();
  stored.number = reader.number<std::uint64_t>();
  for (Ballot* ballot : {&stored.vote.promised, &stored.vote.accepted}) {
    ballot->round = reader.number<std::uint32_t>();
    ballot->rank = reader.number<std::uint32_t>();
  }
  stored.vote.value = reader.bytes(max_frame_bytes);
  if (!reader.finished() || run != run_)
    throw FileError(votes(), "{}; this machine cannot vote in its job any more",
                    text.empty() ? "is missing" : "is damaged");
  return stored;
}

FileDescriptor VoteFile::guard() const {
  const std::string path = folder_ + "/guard";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) throw FileError(path, "cannot be opened ({})", std::strerror(errno));
  // A process that was stopped while it voted must not stop this one.
  for (int i = 0; i < 100; ++i) {
    if (lock_alone(file)) return file;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {};
}

}  // namespace lockstep::detail
