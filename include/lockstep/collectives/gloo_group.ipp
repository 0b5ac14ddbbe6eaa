#pragma once

#include "lockstep/collectives/gloo_group.hpp"

#include <cstring>
#include <utility>

#include "lockstep/collectives/gloo_channel.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

GlooGroup::GlooGroup(std::shared_ptr<GlooMesh> mesh, const Options& options)
    : channel_(std::make_shared<detail::GlooChannel>(std::move(mesh), options.channel,
                                                     options.timeout, options.order)) {}

std::size_t GlooGroup::rank() const { return channel_->rank(); }
std::size_t GlooGroup::size() const { return channel_->size(); }
void GlooGroup::abort() { channel_->abort(); }

void GlooGroup::reduce(std::byte* p, Elements elements, detail::SumParts sum, double* sums,
                       std::size_t m) {
  if (size() == 1) return;
  detail::GlooChannel& c = *channel_;
  c.run({detail::GlooCall::Operation::all_reduce, elements.n, m, 0, elements.size}, [&] {
    const std::size_t bytes = elements.bytes(), tail = m * sizeof(double);
    const bool sends_sums = tail <= c.small;
    const std::size_t at =
        sends_sums ? tail : 0;  // the sums go first, since they need more alignment
    const bool sends_all = at + bytes <= c.small && sends_sums;
    if (sends_sums && m > 0) std::memcpy(c.payload(), sums, tail);
    if (sends_all && bytes > 0) std::memcpy(c.payload() + at, p, bytes);
    c.send_frames(at + (sends_all ? bytes : 0), !sends_all);
    if (sends_all) {
      c.receive_frames();
      c.add_frames(p, at, bytes, sum);
    } else {
      c.reduce(p, bytes, sum, false);
    }
    auto* const sum_bytes = reinterpret_cast<std::byte*>(sums);
    if (sends_sums)
      c.add_frames(sum_bytes, 0, tail, &detail::sum_parts<double>);
    else
      c.reduce(sum_bytes, tail, &detail::sum_parts<double>, bytes > 0);
    c.finish();
  });
}

void GlooGroup::send(std::byte* p, Elements elements, std::size_t root) {
  if (root >= size()) {
    abort();
    throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size());
  }
  if (size() == 1) return;
  detail::GlooChannel& c = *channel_;
  c.run({detail::GlooCall::Operation::broadcast, elements.n, 0, root, elements.size}, [&] {
    const std::size_t bytes = elements.bytes();
    const bool is_root = rank() == root, is_small = bytes <= c.small;
    if (is_root && is_small && bytes > 0) std::memcpy(c.payload(), p, bytes);
    c.send_frames(is_root && is_small ? bytes : 0, !is_small);
    if (is_small) {
      c.receive_frames();
      if (!is_root && bytes > 0) std::memcpy(p, c.payload_of(root), bytes);
    } else {
      c.copy(p, is_root ? nullptr : p, bytes, root, 1);
    }
    c.finish();
  });
}

void GlooGroup::gather(const std::byte* p, Elements elements, std::byte* out) {
  const std::size_t bytes = elements.bytes();
  if (bytes > 0) std::memcpy(out + rank() * bytes, p, bytes);
  if (size() == 1) return;
  detail::GlooChannel& c = *channel_;
  c.run({detail::GlooCall::Operation::all_gather, elements.n, 0, 0, elements.size}, [&] {
    const bool is_small = bytes <= c.small;
    if (is_small && bytes > 0) std::memcpy(c.payload(), p, bytes);
    c.send_frames(is_small ? bytes : 0, !is_small);
    if (is_small) {
      c.receive_frames();
      for (std::size_t r = 0; r < size() && bytes > 0; ++r)
        std::memcpy(out + r * bytes, c.payload_of(r), bytes);
    } else {
      c.copy(p, out, bytes, 0, size());
    }
    c.finish();
  });
}

void GlooGroup::barrier() {
  if (size() == 1) return;
  channel_->run({detail::GlooCall::Operation::barrier, 0, 0, 0, 0}, [&] {
    channel_->send_frames(0);
    channel_->receive_frames();
    channel_->finish();
  });
}

}  // namespace lockstep
