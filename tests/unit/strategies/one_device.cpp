#include "lockstep/strategies/one_device.hpp"

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <thread>

#include "lockstep/devices/reference/device.hpp"

namespace {

namespace ls = lockstep;

/// A device that records how it was opened, and whether its scope is held.
struct Watched : ls::Reference<float> {
  struct Context : ls::ReferenceContext<float> {
    std::size_t replicas = 0, index = 0;
    int number = 0;
    bool in_scope = false;
    struct Held {
      explicit Held(bool& flag) : held(&flag) { flag = true; }
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() { *held = false; }
      bool* held;
    };
    Held scope() { return Held(in_scope); }
  };
  int number = 0;
  Context open(std::size_t replicas, std::size_t index) const {
    Context context;
    context.replicas = replicas;
    context.index = index;
    context.number = number;
    return context;
  }
};
using Strategy = ls::OneDevice<Watched>;
static_assert(ls::Strategy<Strategy> && ls::Strategy<ls::OneDevice<ls::Reference<double>>>);

}  // namespace

TEST_CASE("OneDevice is one replica, the chief, opened with the device's options") {
  Strategy strategy{.on = {}};
  strategy.on.number = 7;
  auto session = strategy.open();
  CHECK(session.replicas() == 1);
  CHECK(session.local_replicas() == 1);
  CHECK(session.first_replica() == 0);
  CHECK(session.is_chief());
  int bodies = 0;
  session.each([&](const ls::ReplicaContext<Watched>& r) {
    ++bodies;
    CHECK(r.local == 0);
    CHECK(r.rank == 0);
    CHECK(r.group.size() == 1);
    CHECK(r.device.number == 7);
    CHECK(r.device.replicas == 1);
    CHECK(r.device.index == 0);
  });
  CHECK(bodies == 1);
}

TEST_CASE("the body runs in the caller's thread, with the device's scope held") {
  auto session = Strategy{}.open();
  const auto caller = std::this_thread::get_id();
  Watched::Context* context = nullptr;
  session.each([&](const ls::ReplicaContext<Watched>& r) {
    context = &r.device;
    CHECK(std::this_thread::get_id() == caller);
    CHECK(context->in_scope);
  });
  CHECK_FALSE(context->in_scope);
}

TEST_CASE("an exception of the body reaches the caller, and the session stays usable") {
  auto session = Strategy{}.open();
  Watched::Context* context = nullptr;
  const auto fail = [&](const ls::ReplicaContext<Watched>& r) {
    context = &r.device;
    throw std::runtime_error("body");
  };
  CHECK_THROWS_AS(session.each(fail), std::runtime_error);
  CHECK_FALSE(context->in_scope);
  bool ran = false;
  session.each([&](const ls::ReplicaContext<Watched>&) { ran = true; });
  CHECK(ran);
}

TEST_CASE("the context keeps its address when the session is moved") {
  auto session = Strategy{}.open();
  const void* before = nullptr;
  session.each([&](const ls::ReplicaContext<Watched>& r) { before = &r.device; });
  auto moved = std::move(session);
  moved.each([&](const ls::ReplicaContext<Watched>& r) { CHECK(&r.device == before); });
}

TEST_CASE("two sessions of one strategy share nothing") {
  const Strategy strategy;
  auto a = strategy.open(), b = strategy.open();
  const void *first = nullptr, *second = nullptr;
  a.each([&](const ls::ReplicaContext<Watched>& r) { first = &r.device; });
  b.each([&](const ls::ReplicaContext<Watched>& r) { second = &r.device; });
  CHECK(first != second);
}
