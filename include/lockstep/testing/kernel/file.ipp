#pragma once

#include "lockstep/testing/kernel/file.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::testing::detail {

std::size_t total_bytes(std::span<const iovec> parts) {
  std::size_t n = 0;
  for (const iovec& part : parts) n += part.iov_len;
  return n;
}

std::size_t copy_out(std::span<const iovec> to, std::size_t done, const char* from, std::size_t n) {
  std::size_t copied = 0;
  for (const iovec& part : to) {
    if (done >= part.iov_len) {
      done -= part.iov_len;
      continue;
    }
    const std::size_t count = std::min(part.iov_len - done, n - copied);
    std::memcpy(static_cast<char*>(part.iov_base) + done, from + copied, count);
    copied += count;
    done = 0;
    if (copied == n) break;
  }
  return copied;
}

ssize_t SimFile::read(std::span<const iovec>, bool) { return -EINVAL; }
ssize_t SimFile::write(std::span<const iovec>) { return -EINVAL; }

void SimFile::changed(std::uint32_t events) {
  static_cast<void>(events);
  scheduler->wake_all(waiters);
  for (SimEpoll* watcher : watchers_) watcher->notify(*this);
}

ssize_t SimCounter::read(std::span<const iovec> to, bool) {
  if (total_bytes(to) < sizeof value_) return -EINVAL;
  if (value_ == 0) return -EAGAIN;
  const std::uint64_t result = semaphore_ ? 1 : value_;
  value_ -= result;
  copy_out(to, 0, reinterpret_cast<const char*>(&result), sizeof result);
  return sizeof result;
}

ssize_t SimCounter::write(std::span<const iovec> from) {
  if (total_bytes(from) < sizeof value_) return -EINVAL;
  std::uint64_t more;
  std::memcpy(&more, from[0].iov_base, sizeof more);
  value_ += more;
  changed(EPOLLIN);
  return sizeof more;
}

ssize_t SimTimer::read(std::span<const iovec> to, bool) {
  if (total_bytes(to) < sizeof expirations_) return -EINVAL;
  if (expirations_ == 0) return -EAGAIN;
  copy_out(to, 0, reinterpret_cast<const char*>(&expirations_), sizeof expirations_);
  expirations_ = 0;
  return sizeof expirations_;
}

void SimTimer::set(SimTime at, SimTime interval) {
  at_ = at;
  interval_ = interval;
  expirations_ = 0;
  scheduler->schedule(at_, *this, 0, ++version_);
}

SimTime SimTimer::left() const {
  return at_ == never ? 0 : std::max<SimTime>(at_ - scheduler->now(), 1);
}

void SimTimer::fire(std::uint32_t, std::uint64_t a, std::uint64_t) {
  if (a != version_) return;
  ++expirations_;
  at_ = interval_ > 0 ? at_ + interval_ : never;
  scheduler->schedule(at_, *this, 0, version_);
  changed(EPOLLIN);
}

SimPipeEnd::SimPipeEnd(SimProcess& owner, std::shared_ptr<SimPipe> in, std::shared_ptr<SimPipe> out)
    : SimFile(owner), in_(std::move(in)), out_(std::move(out)) {
  if (in_) in_->reader = this;
  if (out_) out_->writer = this;
}

std::uint32_t SimPipeEnd::ready() {
  std::uint32_t events = 0;
  if (in_ && !in_->bytes.empty()) events |= EPOLLIN;
  if (in_ && in_->writer == nullptr) events |= EPOLLHUP | (out_ ? EPOLLIN : 0u);
  if (out_ && out_->bytes.size() < SimPipe::capacity) events |= EPOLLOUT;
  if (out_ && out_->reader == nullptr) events |= EPOLLERR | EPOLLOUT;
  return events;
}

ssize_t SimPipeEnd::read(std::span<const iovec> to, bool peek) {
  if (!in_) return -EBADF;
  if (in_->bytes.empty()) return in_->writer == nullptr ? 0 : -EAGAIN;
  const std::size_t n = copy_out(to, 0, in_->bytes.data(), in_->bytes.size());
  if (peek) return static_cast<ssize_t>(n);
  in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(n));
  if (in_->writer != nullptr) static_cast<SimPipeEnd*>(in_->writer)->changed(EPOLLOUT);
  return static_cast<ssize_t>(n);
}

ssize_t SimPipeEnd::write(std::span<const iovec> from) {
  if (!out_) return -EBADF;
  if (out_->reader == nullptr) return -EPIPE;
  std::size_t room = SimPipe::capacity - std::min(SimPipe::capacity, out_->bytes.size());
  if (room == 0) return -EAGAIN;
  std::size_t written = 0;
  for (const iovec& part : from) {
    const std::size_t n = std::min(part.iov_len, room);
    const char* const begin = static_cast<const char*>(part.iov_base);
    out_->bytes.insert(out_->bytes.end(), begin, begin + n);
    room -= n;
    written += n;
  }
  static_cast<SimPipeEnd*>(out_->reader)->changed(EPOLLIN);
  return static_cast<ssize_t>(written);
}

void SimPipeEnd::close() {
  if (in_) in_->reader = nullptr;
  if (out_) out_->writer = nullptr;
  if (in_ && in_->writer != nullptr) static_cast<SimPipeEnd*>(in_->writer)->changed(EPOLLERR);
  if (out_ && out_->reader != nullptr) static_cast<SimPipeEnd*>(out_->reader)->changed(EPOLLHUP);
}

std::uint32_t SimEpoll::ready() {
  for (const Item& item : items_)
    if (!item.disabled && (item.file->ready() & (item.event.events | EPOLLERR | EPOLLHUP)) != 0 &&
        (item.edge || (item.event.events & EPOLLET) == 0))
      return EPOLLIN;
  return 0;
}

int SimEpoll::control(int operation, int descriptor, std::shared_ptr<SimFile> file,
                      const epoll_event* event) {
  const auto found = std::find_if(items_.begin(), items_.end(), [&](const Item& item) {
    return item.descriptor == descriptor && item.file == file;
  });
  if (operation == EPOLL_CTL_ADD) {
    if (found != items_.end()) return -EEXIST;
    if (std::find(file->watchers_.begin(), file->watchers_.end(), this) == file->watchers_.end())
      file->watchers_.push_back(this);
    items_.push_back({descriptor, file, *event, true});
  } else if (found == items_.end()) {
    return -ENOENT;
  } else if (operation == EPOLL_CTL_MOD) {
    found->event = *event;
    found->edge = true;
    found->disabled = false;
  } else {
    items_.erase(found);
    if (std::none_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return item.file == file; }))
      std::erase(file->watchers_, this);
    return 0;
  }
  if (ready() != 0) changed(EPOLLIN);
  return 0;
}

int SimEpoll::collect(std::span<epoll_event> to) {
  std::size_t count = 0;
  for (Item& item : items_) {
    if (count == to.size()) break;
    if (item.disabled || ((item.event.events & EPOLLET) != 0 && !item.edge)) continue;
    const std::uint32_t events = item.file->ready() & (item.event.events | EPOLLERR | EPOLLHUP);
    if (events == 0) continue;
    item.edge = false;
    item.disabled = (item.event.events & EPOLLONESHOT) != 0;
    to[count] = item.event;
    to[count++].events = events;
  }
  return static_cast<int>(count);
}

void SimEpoll::notify(SimFile& file) {
  bool fresh = false;
  for (Item& item : items_) {
    if (item.file.get() != &file) continue;
    item.edge = true;
    fresh = fresh ||
            (!item.disabled && (file.ready() & (item.event.events | EPOLLERR | EPOLLHUP)) != 0);
  }
  if (fresh) changed(EPOLLIN);
}

void SimEpoll::forget(SimFile& file) {
  std::erase_if(items_, [&](const Item& item) { return item.file.get() == &file; });
}

void SimEpoll::close() {
  for (const Item& item : items_) std::erase(item.file->watchers_, this);
  items_.clear();
}

int Descriptors::add(std::shared_ptr<SimFile> file) {
  ++file->descriptors;
  if (free_.empty()) {
    files_.push_back(std::move(file));
    return first + static_cast<int>(files_.size()) - 1;
  }
  const int number = free_.back();
  free_.pop_back();
  files_[static_cast<std::size_t>(number - first)] = std::move(file);
  return number;
}

int Descriptors::close(int number) {
  auto file = find(number);
  if (!file) return -EBADF;
  files_[static_cast<std::size_t>(number - first)] = nullptr;
  free_.push_back(number);
  if (--file->descriptors > 0) return 0;
  for (SimEpoll* watcher : file->watchers()) watcher->forget(*file);
  file->watchers().clear();
  file->close();
  closed_.push_back(std::move(file));
  return 0;
}

void Descriptors::close_all(const SimProcess& process) {
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (files_[i] && &files_[i]->owner() == &process) {
      // The number stays reserved: objects of the process may still have it.
      close(first + static_cast<int>(i));
      free_.pop_back();
    }
}

}  // namespace lockstep::testing::detail
