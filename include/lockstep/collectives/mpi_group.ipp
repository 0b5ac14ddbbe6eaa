#pragma once

#include "lockstep/collectives/mpi_group.hpp"

#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep {

MpiGroup::MpiGroup(const MpiCommunicator& of, const Options& options)
    : channel_(std::make_shared<detail::MpiChannel>(of, options.timeout, options.order,
                                                    options.spins)) {}

void MpiGroup::abort() { channel_->end(detail::MpiEnd::Cause::aborted, rank()); }
void MpiGroup::lose(std::size_t member) { channel_->end(detail::MpiEnd::Cause::lost, member); }

void MpiGroup::reduce(std::byte* p, detail::Elements elements, detail::SumParts sum, double* sums,
                      std::size_t m) {
  detail::MpiChannel& c = *channel_;
  c.run({detail::CollectiveCall::Operation::all_reduce, elements.kind, elements.n, m, 0,
         elements.size},
        [&] {
          const std::size_t bytes = elements.bytes(), tail = m * sizeof(double);
          const bool sends_sums = tail <= c.small;
          const std::size_t at = sends_sums ? tail : 0;  // first, since they need more alignment
          const bool sends_all = sends_sums && at + bytes <= c.small;
          auto* const sum_bytes = reinterpret_cast<std::byte*>(sums);
          if (size() == 1) return;
          if (sends_sums && m > 0) std::memcpy(c.payload(), sums, tail);
          if (sends_all && bytes > 0) std::memcpy(c.payload() + at, p, bytes);
          c.send_frames(at + (sends_all ? bytes : 0));
          if (sends_all) {
            c.receive_frames();
            c.add_frames(p, at, bytes, sum);
          } else {
            c.reduce(p, bytes, sum, false);
          }
          if (sends_sums)
            c.add_frames(sum_bytes, 0, tail, &detail::sum_parts<double>);
          else
            c.reduce(sum_bytes, tail, &detail::sum_parts<double>, bytes > 0);
        });
}

void MpiGroup::send(std::byte* p, detail::Elements elements, std::size_t root) {
  if (root >= size()) {
    abort();
    throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size());
  }
  detail::MpiChannel& c = *channel_;
  c.run({detail::CollectiveCall::Operation::broadcast, elements.kind, elements.n, 0, root,
         elements.size},
        [&] {
          const std::size_t bytes = elements.bytes();
          const bool is_root = rank() == root, is_small = bytes <= c.small;
          if (size() == 1) return;
          if (is_root && is_small && bytes > 0) std::memcpy(c.payload(), p, bytes);
          c.send_frames(is_root && is_small ? bytes : 0);
          if (!is_small) {
            c.copy(p, is_root ? nullptr : p, bytes, root, 1);
          } else {
            c.receive_frames();
            if (!is_root && bytes > 0) std::memcpy(p, c.payload_of(root), bytes);
          }
        });
}

void MpiGroup::gather(const std::byte* p, detail::Elements elements, std::byte* out) {
  const std::size_t bytes = elements.bytes();
  detail::MpiChannel& c = *channel_;
  c.run({detail::CollectiveCall::Operation::all_gather, elements.kind, elements.n, 0, 0,
         elements.size},
        [&] {
          if (bytes > 0) std::memmove(out + rank() * bytes, p, bytes);
          if (size() == 1) return;
          const bool is_small = bytes <= c.small;
          if (is_small && bytes > 0) std::memcpy(c.payload(), p, bytes);
          c.send_frames(is_small ? bytes : 0);
          if (!is_small) return c.copy(p, out, bytes, 0, size());
          c.receive_frames();
          for (std::size_t r = 0; r < size() && bytes > 0; ++r)
            std::memcpy(out + r * bytes, c.payload_of(r), bytes);
        });
}

void MpiGroup::barrier() {
  channel_->run({detail::CollectiveCall::Operation::barrier}, [&] {
    if (size() == 1) return;
    channel_->send_frames(0);
    channel_->receive_frames();
  });
}

}  // namespace lockstep
