/// \file
/// The tables of embeddings that only the servers of a job have. Invariants: a server has its range of
/// each table, every other process the rows of one batch; all processes have the other weights, which
/// are equal between two phases of asynchronous steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/process/lazy_memory.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/host/host_memory.hpp"
#include "lockstep/model/graph.hpp"
#include "lockstep/training/asynchronous/push_messages.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// The weights outside of the tables that an input chooses rows of, in ascending order.
template <class Net>
constexpr auto weights_outside_tables() {
  constexpr auto tables = row_tables<Net>();
  struct {
    std::array<Slice, tables.count + 1> part{};
    std::size_t count = 0, size = 0;
  } found;
  std::size_t at = 0;
  const auto add = [&](std::size_t end) {
    if (at < end) found.part[found.count++] = {at, end - at};
    found.size += end - at;
  };
  for (const RowTable& table : tables.all()) {
    add(table.first);
    at = table.first + table.rows * table.width;
  }
  add(Net::graph.weights);
  return found;
}

/// Whether all that reads a network's input are embeddings, and there are no others.
template <class Net>
constexpr bool reads_by_tables() {
  std::size_t embeddings = 0;
  std::array<bool, static_cast<std::size_t>(Net::graph.nodes) + 1> is_input{true};
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const Node& node = Net::graph.node[static_cast<std::size_t>(i)];
    const auto reads_input = [&] {
      for (const ValueId v : node.operands_of(Net::graph.operand))
        if (is_input[static_cast<std::size_t>(v)]) return true;
      return false;
    };
    const bool is_embedding = node.class_name == "Embedding";
    if (is_embedding)
      ++embeddings;
    else if (node.class_name == "InputLayer" &&
             Net::graph.operand[node.operands_begin] == ValueId::batch)
      is_input[static_cast<std::size_t>(node.out)] = true;
    else if (reads_input())
      return false;
  }
  return embeddings > 0 && embeddings == row_tables<Net>().count;
}

/// The initial values of the elements that `keep(values, first)` wants, in blocks: `first` is the
/// number of values[0] among the parameter's. A rule that does not draw each element for itself gives
/// one block.
LOCKSTEP_COLD_DECL void draw_in_blocks(
    const NamedParameter& p, std::uint64_t seed, std::size_t end,
    FunctionRef<void(std::span<const double>, std::size_t)> keep);

/// The part of a ReplicaSet that differs in a job whose tables stay on the servers.
template <class Set>
class DistantTables {
  using Net = typename Set::Network;
  using D = typename Set::device;
  using T = typename Set::T;
  using Replica = typename Set::Replica;
  using Context = ReplicaContext<D>;
  static constexpr std::size_t size = sizeof(T);
  static constexpr std::size_t weights = Net::graph.weights;
  static constexpr auto tables = row_tables<Net>();
  static constexpr auto outside = weights_outside_tables<Net>();
  /// Bytes that an exchange moves at once.
  static constexpr std::size_t block = std::size_t{1} << 20;

 public:
  /// \throws UsageError unless embeddings, and nothing else, read the network's input.
  [[gnu::cold]] DistantTables() {
    constexpr bool is_possible = reads_by_tables<Net>();
    if constexpr (!is_possible)
      throw UsageError(
          "parameter_server: .tables_on_servers keeps the tables of embeddings on the servers if all "
          "layers that read the network's input are embeddings without a regularizer, and no other "
          "layer is one; leave the option out, or change the network");
  }

  /// The weights that all processes have.
  static std::span<const Slice> shared() { return {outside.part.data(), outside.count}; }
  static bool is_shared(std::size_t weight) {
    return std::any_of(shared().begin(), shared().end(),
                       [&](const Slice& part) { return part.contains(weight); });
  }

  /// The number of weights that this process has between two batches.
  static std::size_t held(const Set& set) {
    std::size_t own = outside.size;
    for (const RowTable& table : tables.all())
      set.first().policy().owned().each_within({table.first, table.rows * table.width},
                                               [&](Slice part, std::size_t) { own += part.count; });
    return own;
  }

  /// See ReplicaSet::build.
  [[gnu::cold]] void build(Set& set) {
    set.session_.each([](const Context& r) {
      if constexpr (UsesExchangeAllocator<typename D::Context>)
        r.device.set_exchange_allocator(std::make_shared<LazyMemory>());
    });
    // The weights that all have, one after the other.
    std::vector<NamedParameter> parameters;
    std::size_t next = 0;
    for (const NamedParameter& p : named_parameters<Net>()) {
      if (p.trainable && !is_shared(p.offset)) continue;
      parameters.push_back(p);
      if (p.trainable) parameters.back().offset = std::exchange(next, next + p.shape.size());
    }
    std::vector<T> values(outside.size), state(Net::graph.state);
    set.make_replicas(parameters, values, state, shared());
    set.session_.each([&](const Context&) {
      Replica& replica = set.first();
      T* const all = replica.engine().weights().data();
      const T* from = values.data();
      for (const Slice& part : shared()) {
        std::copy_n(from, part.count, all + part.first);
        from += part.count;
      }
      replica.engine().state().upload(state.data());
      draw_tables(set, all);
    });
    note_change(set);
    set.sets_ = 0;
  }

  /// The batch of all processes' next forward pass outside of asynchronous steps: gets the rows that
  /// this process' part reads, and renumbers them. Collective.
  LoadedBatch with_rows(Set& set, LoadedBatch batch) {
    const std::span<const T> x(batch.rows<T>(0), batch.slice.count * Net::input_shape.size());
    collect_rows(x, rows_.rows);
    rows_.place(tables.all(), weights, size, false);
    set.session_.each([&](const Context&) { exchange_rows(set); });
    renumber<T>(x, rows_.rows, x_);
    batch.field[0] = x_.data();
    return batch;
  }

  /// See ReplicaSet::save: the chief reads the buffers in parts, while the others answer.
  [[gnu::cold]] void save(Set& set, JobState& to) {
    Replica& replica = set.first();
    to.drop_buffers();
    to.type = dtype_of<T>;
    to.state = replica.template copy_of<std::byte>(replica.engine().state());
    for (std::size_t i = 0; i < replica.policy().slot_buffers().size(); ++i)
      to.slot_values.emplace_back(slot_name(set.optimizer_, i), std::vector<std::byte>());
    set.save_facts(to);
    if (set.session_.is_chief()) {
      to.distant = std::make_shared<OfServers>(set);
      return;
    }
    std::vector<std::byte> bytes(block);
    for (Part part{}; exchange(set, part, bytes), part.count > 0;) {
    }
  }

  /// See ReplicaSet::load: the chief reads the buffers, and each process keeps its part.
  [[gnu::cold]] void load(Set& set, const JobState& from) {
    const bool is_chief = set.session_.is_chief();
    std::vector<std::byte> bytes(block);
    note_change(set);
    for (std::size_t buffer = 0; buffer < 2 + from.slot_values.size(); ++buffer)
      for (const NamedParameter& p : named_parameters<Net>()) {
        if (p.trainable == (buffer == 1)) continue;
        const std::size_t end = (p.offset + p.shape.size()) * size;
        for (std::size_t first = p.offset * size; first < end; first += block) {
          const std::size_t count = std::min(block, end - first);
          if (is_chief) from.distant->read(buffer, first, {bytes.data(), count});
          set.session_.each([&](const Context& r) {
            r.host.broadcast(bytes.data(), count, 0);
            const std::byte* const values = bytes.data();
            each_owned(set, buffer, {first, count}, [&](std::byte* own, Slice part) {
              std::memcpy(own, values + part.first, part.count);
            });
          });
        }
      }
    set.session_.each([&](const Context& r) {
      Replica& replica = set.first();
      replica.policy().complete(r, replica.engine().weights().data());
    });
    set.load_facts(from);
  }

 private:
  /// Bytes of a buffer, numbered as in buffer_of; none: the end.
  struct Part {
    std::uint64_t buffer = 0, first = 0, count = 0;
  };
  /// The chief's view of what the servers have.
  class OfServers final : public DistantBuffers {
   public:
    explicit OfServers(Set& set) : set_(&set) {}
    ~OfServers() override {
      Part end;
      try {
        exchange(*set_, end, {});
      } catch (...) {  // the next exchange throws it
      }
    }
    void read(std::size_t buffer, std::size_t first, std::span<std::byte> to) override {
      for (std::size_t done = 0; done < to.size(); done += block) {
        const std::span<std::byte> next = to.subspan(done, std::min(block, to.size() - done));
        Part part{buffer, first + done, next.size()};
        exchange(*set_, part, next);
      }
    }

   private:
    Set* set_;
  };

  static void note_change(Set& set) {
    ++set.sets_;
    set.are_equal_ = false;
  }

  /// The initial values of the tables that this process owns.
  [[gnu::cold]] static void draw_tables(Set& set, T* all) {
    const Ranges& owned = set.first().policy().owned();
    if (owned.size() == 0) return;
    const Slice last = owned.parts().back();
    for (const NamedParameter& p : named_parameters<Net>()) {
      if (!p.trainable || is_shared(p.offset) || last.first + last.count <= p.offset) continue;
      const auto keep = [&](std::span<const double> values, std::size_t first) {
        owned.each_within({p.offset + first, values.size()}, [&](Slice part, std::size_t) {
          for (std::size_t i = part.first; i < part.first + part.count; ++i)
            all[i] = static_cast<T>(values[i - p.offset - first]);
        });
      };
      draw_in_blocks(p, set.seed_, last.first + last.count - p.offset, keep);
    }
  }

  static Slice bytes_of(Slice range) { return {range.first * size, range.count * size}; }

  /// Each worker asks each server for rows.
  void exchange_rows(Set& set) {
    const ReplicaRoles roles = set.session_.roles();
    const std::size_t rank = set.session_.first_replica();
    auto& pairs = set.session_.pairs();
    Replica& replica = set.first();
    auto* const all = reinterpret_cast<std::byte*>(replica.engine().weights().data());
    const auto range_of = [&](std::size_t owner) {
      return bytes_of(replica.policy().ranges()[owner]);
    };
    if (roles.computing.contains(rank))
      for (std::size_t owner = roles.owners.first; owner < roles.owners.first + roles.owners.count;
           ++owner) {
        const Slice range = range_of(owner);
        ProcessGroup& group = pairs.at(owner);
        touched_within(rows_, {&range, 1}, parts_, places_);
        std::uint64_t count = parts_.size();
        group.send(&count, 1);
        group.send(parts_.data(), parts_.size());
        packed_.resize(packed_size(parts_));
        group.receive(packed_.data(), packed_.size());
        unpack(places_, packed_, all);
      }
    if (roles.owners.contains(rank))
      for (std::size_t worker = roles.computing.first;
           worker < roles.computing.first + roles.computing.count; ++worker) {
        ProcessGroup& group = pairs.at(worker);
        std::uint64_t count = 0;
        group.receive(&count, 1);
        check(count <= weights + 1, worker);
        parts_.resize(static_cast<std::size_t>(count));
        group.receive(parts_.data(), parts_.size());
        const Slice range = range_of(rank);
        for (const Slice& part : parts_)
          check(part.count == 0 || (part.first >= range.first && part.count <= range.count &&
                                    part.first - range.first <= range.count - part.count),
                worker);
        packed_.resize(packed_size(parts_));
        pack(parts_, all, packed_);
        group.send(packed_.data(), packed_.size());
      }
  }
  static void check(bool is_possible, std::size_t rank) {
    if (!is_possible)
      throw Error("parameter server: rank {} asks for rows that are not this server's", rank);
  }

  /// The chief names a part of a buffer, and all get it from its owners, in `bytes`.
  [[gnu::cold]] static void exchange(Set& set, Part& part, std::span<std::byte> bytes) {
    set.session_.each([&](const Context& r) {
      r.host.broadcast(reinterpret_cast<std::byte*>(&part), sizeof part, 0);
      if (part.count == 0) return;
      check(part.count <= bytes.size(), 0);
      const Slice whole{static_cast<std::size_t>(part.first), static_cast<std::size_t>(part.count)};
      const auto buffer = static_cast<std::size_t>(part.buffer);
      each_owned(set, buffer, whole, [&](const std::byte* own, Slice of) {
        std::memcpy(bytes.data() + of.first, own, of.count);
      });
      const std::vector<Slice> ranges = [&] {
        std::vector<Slice> found;
        for (const Slice& range : set.first().policy().ranges()) found.push_back(bytes_of(range));
        return found;
      }();
      for (std::size_t owner = 0; owner < ranges.size(); ++owner) {
        const std::size_t first = std::max(whole.first, ranges[owner].first);
        const std::size_t end =
            std::min(whole.first + whole.count, ranges[owner].first + ranges[owner].count);
        if (first < end) r.host.broadcast(bytes.data() + (first - whole.first), end - first, owner);
      }
    });
  }

  /// Calls f(memory, part) for what this process has of a part of a buffer; its parts are counted from
  /// the beginning of `bytes`. All processes have the layers' state.
  template <class F>
  static void each_owned(Set& set, std::size_t buffer, Slice bytes, const F& f) {
    Replica& replica = set.first();
    const auto at = [](T* values, std::size_t i) {
      return reinterpret_cast<std::byte*>(values + i);
    };
    if (buffer == 1)
      return f(at(replica.engine().state().data(), bytes.first / size), Slice{0, bytes.count});
    const Slice elements{bytes.first / size, bytes.count / size};
    replica.policy().owned().each_within(elements, [&](Slice part, std::size_t place) {
      std::byte* const own = buffer == 0
                                 ? at(replica.engine().weights().data(), part.first)
                                 : at(replica.policy().slot_buffers()[buffer - 2].data(), place);
      f(own, Slice{(part.first - elements.first) * size, part.count * size});
    });
  }

  PlacedRows rows_;
  std::vector<T> x_;
  std::vector<Slice> parts_, places_;
  std::vector<std::byte> packed_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/distant_tables.ipp"
#endif
