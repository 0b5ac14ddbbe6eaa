#pragma once

#include "lockstep/cluster/elastic/vote_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/cluster/rendezvous/frames.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/files/atomic_file.hpp"

namespace lockstep::detail {

/// The first bytes of a vote file; the last digit is the version.
inline constexpr std::string_view vote_magic = "lockstep vote 1\n";

inline constexpr const char* removal_remedy =
    ", so this machine cannot vote any more; exclude it from the cleaning of old files (systemd's "
    "RemoveIPC=yes empties /dev/shm when the last session of its user ends), or set "
    "LOCKSTEP_ELASTIC_DIRECTORY to another folder";

void VoteFile::enter(std::uint64_t run) {
  if (run == run_) return;
  leave();
  folder_ = fmt::format("{}/{:016x}", machine_.path(), run);
  while (!lock_.is_open()) {  // the last process of an earlier attempt may be removing the folder
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      throw FileError(folder_, "cannot be created ({})", std::strerror(errno));
    lock_ = open_locked(folder_ + "/lock", O_CREAT);
  }
  run_ = run;
  const FileDescriptor held = guard();
  if (held.is_open()) create_votes();
  Vote vote;
  load(vote);
}

std::optional<Vote> VoteFile::change(const GenerationId& generation,
                                     const std::function<void(Vote&)>& change) {
  if (generation.run != run_) return std::nullopt;
  if (!machine_.is_intact() || !is_same_file(lock_, folder_ + "/lock"))
    throw FileError(folder_, "was removed while its job runs{}", removal_remedy);
  const FileDescriptor held = guard();
  is_blocked_ = !held.is_open();
  if (is_blocked_) return std::nullopt;
  Vote vote;
  const std::uint64_t stored = load(vote);
  if (stored > generation.number) return std::nullopt;
  const Vote before = vote;
  if (stored < generation.number) vote = {};
  change(vote);
  if (stored < generation.number || !(vote == before)) store(generation.number, vote);
  return vote;
}

void VoteFile::create_votes() const {
  struct stat status{};
  if (::fstat(lock_.number(), &status) != 0)
    throw FileError(folder_ + "/lock", "cannot be read ({})", std::strerror(errno));
  const bool existed = status.st_size > 0;
  if (::access(votes().c_str(), F_OK) != 0) {
    if (existed)  // a blank file would forget promises to members that live
      throw FileError(votes(), "was removed while its job runs{}", removal_remedy);
    store(0, {});
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

void VoteFile::store(std::uint64_t number, const Vote& vote) const {
  FrameWriter writer(FrameType::agreement);
  writer.number(run_).number(number);
  for (const Ballot& ballot : {vote.promised, vote.accepted})
    writer.number(ballot.round).number(ballot.rank);
  writer.bytes(vote.value);
  const std::string body = std::move(writer).finish();
  const std::uint32_t sum = crc32c(body.data(), body.size());
  AtomicFile file(votes());
  file.write(vote_magic);
  file.write(body);
  file.write(std::string_view(reinterpret_cast<const char*>(&sum), sizeof sum));
  file.commit();
}

std::uint64_t VoteFile::load(Vote& vote) const {
  const std::string text = read_small_file(votes());
  std::uint32_t sum = 0;
  constexpr std::size_t around = vote_magic.size() + frame_header + sizeof sum;
  const bool whole = text.size() >= around && text.starts_with(vote_magic);
  std::string_view body = text;
  if (whole) {
    std::memcpy(&sum, text.data() + text.size() - sizeof sum, sizeof sum);
    body = body.substr(vote_magic.size(), text.size() - vote_magic.size() - sizeof sum);
  }
  const bool intact = whole && crc32c(body.data(), body.size()) == sum;
  FrameReader reader(intact ? body.substr(frame_header) : std::string_view());
  const auto run = reader.number<std::uint64_t>(), number = reader.number<std::uint64_t>();
  for (Ballot* ballot : {&vote.promised, &vote.accepted}) {
    ballot->round = reader.number<std::uint32_t>();
    ballot->rank = reader.number<std::uint32_t>();
  }
  vote.value = reader.bytes(max_frame_bytes);
  if (!reader.finished() || run != run_)
    throw FileError(votes(), "{}; this machine cannot vote in its job any more",
                    text.empty() ? "is missing" : "is damaged");
  return number;
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
