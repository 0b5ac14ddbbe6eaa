/// \file
/// Several replicas in one process. Invariants: every replica has a thread, a device context and a
/// communication thread of its own for the life of the session, replica 0 the thread that calls; an
/// error in one replica ends the exchanges of all, and leaves the session as if it had just been
/// opened.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/communication_thread.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/strategies/replica_threads.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep {

/// tf.distribute.MirroredStrategy: N replicas of the model in this process, one on each device;
/// each computes its slice of every batch, and all apply the summed gradients.
///
/// The results are those of one device up to rounding, for any batch and any N; with
/// `virtual_shards` they are the same to the last bit for 1, 2, 4, ... replicas. \code
///   ls::Mirrored<ls::Cpu>{.replicas = 4}                          // a quarter of the cores each
///   ls::Mirrored<ls::Cpu>{{ls::Cpu{0}, ls::Cpu{1}}}               // the halves of the cores
///   ls::Mirrored<ls::Cpu>{.replicas = 2, .virtual_shards = 8}     // equal to 8 replicas, bit by
///   bit
/// \endcode
template <Device D>
struct Mirrored {
  using device = D;
  static constexpr std::string_view name = "mirrored";

  std::vector<D> devices{};        ///< one replica on each; empty: `replicas` times `on`
  std::size_t replicas = 0;        ///< 0: as many as there are devices, 1 if none is named
  D on{};                          ///< the options of each device, if none is named
  std::size_t virtual_shards = 0;  ///< slices of a batch, a power of two; 0: one a replica
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  ///< how long replicas wait for one

  class Session {
   public:
    explicit Session(const Mirrored& options) : state_(std::make_unique<State>(options)) {}

    /// Runs `body` in the replicas' threads. \throws what the first failing replica threw, after
    /// all have ended.
    template <class Body>
    void each(Body&& body) {
      state_->run([&](std::size_t r, Seat& seat) {
        [[maybe_unused]] const auto scope = seat.context->scope();
        body(ReplicaContext<D>{r, r, CollectiveRef(seat.layers),
                               GradientExchange<typename D::real>(seat.exchange), *seat.context});
      });
    }
    std::size_t local_replicas() const { return state_->seats.size(); }
    std::size_t replicas() const { return state_->seats.size(); }
    std::size_t first_replica() const { return 0; }
    std::size_t virtual_shards() const { return state_->virtual_shards; }
    bool is_chief() const { return true; }

   private:
    using Exchange = CommunicationThread<ThreadGroup::Member, typename D::real>;

    struct Seat {
      Seat(ThreadGroup& of_layers, ThreadGroup& of_gradients, std::size_t rank)
          : layers(of_layers, rank),
            exchange(ThreadGroup::Member(of_gradients, rank),
                     ThreadGroup::Member(of_gradients, rank).in_background()) {}
      ThreadGroup::Member layers;
      Exchange exchange;
      std::optional<typename D::Context> context;
    };

    struct State {
      explicit State(const Mirrored& options)
          : virtual_shards(options.virtual_shards),
            layers(group_options(options)),
            gradients(group_options(options)),
            threads(options.count(), spins_of(options)) {
        try {
          for (std::size_t r = 0; r < options.count(); ++r)
            seats.push_back(std::make_unique<Seat>(layers, gradients, r));
        } catch (const std::system_error& e) {
          detail::refuse_thread(seats.size(), e);
        }
        run([&](std::size_t r, Seat& seat) {
          seat.context.emplace(options.device_of(r).open(seats.size(), r));
        });
      }

      /// body(r, seat) in the thread of each replica r.
      template <class Body>
      void run(const Body& body) {
        threads.run([&](std::size_t r) {
          try {
            body(r, *seats[r]);
          } catch (...) {
            layers.abort();
            gradients.abort();
            throw;
          }
        });
        rethrow();
      }

      /// Throws the cause, rather than what the other replicas say of it.
      void rethrow() {
        std::exception_ptr first;
        bool is_cause = false;
        for (const std::exception_ptr& error : threads.errors())
          if (error && !is_cause) {
            is_cause = !is_abort(error);
            if (is_cause || !first) first = error;
          }
        if (!first) return;
        for (const auto& seat : seats) seat->exchange.settle();
        layers.reset();
        gradients.reset();
        std::rethrow_exception(first);
      }

      static bool is_abort(const std::exception_ptr& error) {
        try {
          std::rethrow_exception(error);
        } catch (const CollectiveAborted&) {
          return true;
        } catch (...) {
          return false;
        }
      }

      std::size_t virtual_shards;
      ThreadGroup layers, gradients;
      std::vector<std::unique_ptr<Seat>> seats;
      detail::ReplicaThreads threads;
    };
    std::unique_ptr<State> state_;  // addresses stay when the session moves
  };

  /// \throws UsageError if the numbers cannot be, DeviceError if a device or a thread cannot be
  /// had.
  Session open() const {
    if (!devices.empty() && replicas > 0 && replicas != devices.size())
      throw UsageError({"mirrored: ", replicas, " replicas on a list of ", devices.size(),
                        " devices; give one of the two"});
    if (count() > replica_limit)
      throw UsageError({"mirrored: ", count(), " replicas; there may be 1 to ", replica_limit});
    if (timeout <= std::chrono::nanoseconds(0))
      throw UsageError("mirrored: the timeout must be above 0");
    detail::check_virtual_shards(virtual_shards, count());
    return Session(*this);
  }

  /// More replicas in one process are a slip.
  static constexpr std::size_t replica_limit = ThreadGroup::max_size;

 private:
  std::size_t count() const {
    return devices.empty() ? std::max<std::size_t>(replicas, 1) : devices.size();
  }
  D device_of(std::size_t replica) const {
    const D& d = devices.empty() ? on : devices[replica];
    return virtual_shards > 0 ? detail::of_one_thread(d) : d;
  }
  /// With more replicas than cores one that spins would take the core of one that computes.
  static int spins_of(const Mirrored& options) {
    return options.count() <= std::thread::hardware_concurrency() ? 1000 : 0;
  }
  static ThreadGroup::Options group_options(const Mirrored& options) {
    return {.size = options.count(),
            .timeout = options.timeout,
            .order = options.virtual_shards > 0 ? SumOrder::tree : SumOrder::ranks,
            .spins = spins_of(options)};
  }
};

}  // namespace lockstep
