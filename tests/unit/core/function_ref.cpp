#include "lockstep/core/function_ref.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <type_traits>
#include <utility>

namespace ls = lockstep;

namespace {

using Twice = ls::FunctionRef<int(int)>;

int call(Twice f, int x) { return f(x); }

struct Counter {
  int count = 0;
  void add(int n) { count += n; }
  int sum(int n) const { return count + n; }
};

static_assert(sizeof(Twice) == 2 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<Twice>);
static_assert(!std::is_constructible_v<Twice, int>);
static_assert(!std::is_constructible_v<Twice, void (*)(int)>, "it returns nothing");
static_assert(!std::is_constructible_v<Twice, int (&)(int)>, "it is not an object");
static_assert(std::is_assignable_v<Twice&, Twice>);
static_assert(!std::is_assignable_v<Twice&, int (*)(int)>, "what is assigned may be a temporary");
static_assert(!std::is_assignable_v<Twice&, decltype([](int x) { return x; })>);
static_assert(!std::is_assignable_v<Twice&, decltype([](int x) { return x; })&>);

}  // namespace

TEST_CASE("a temporary can be called during the full expression") {
  CHECK(call([](int x) { return 2 * x; }, 21) == 42);
}

TEST_CASE("the object itself is called, not a copy") {
  struct Adder {
    int total = 0;
    int operator()(int x) { return total += x; }
  } adder;
  const Twice add = adder;
  CHECK(add(1) == 1);
  CHECK(add(2) == 3);
  CHECK(adder.total == 3);
}

TEST_CASE("a const object is called as const") {
  struct Which {
    int operator()(int) { return 1; }
    int operator()(int) const { return 2; }
  };
  Which which;
  const Which constant;
  CHECK(call(which, 0) == 1);
  CHECK(call(constant, 0) == 2);
}

TEST_CASE("a member function is called on its object") {
  Counter counter;
  const ls::FunctionRef<void(int)> add(ls::Constant<&Counter::add>{}, counter);
  add(3);
  CHECK(counter.count == 3);
  const Counter& constant = counter;
  CHECK(Twice(ls::Constant<&Counter::sum>{}, constant)(4) == 7);
}

TEST_CASE("arguments are forwarded unchanged, results are converted") {
  const auto take = [](std::unique_ptr<int> p) { return *p; };
  const ls::FunctionRef<long(std::unique_ptr<int>)> ref = take;
  CHECK(ref(std::make_unique<int>(5)) == 5);
  int x = 0;
  const auto set = [](int& to) {
    to = 7;
    return 1;
  };
  const ls::FunctionRef<void(int&)> setter = set;  // the result is discarded
  setter(x);
  CHECK(x == 7);
}

TEST_CASE("a FunctionRef can be empty and assigned") {
  Twice f;
  CHECK_FALSE(f);
  const auto same = [](int x) { return x; };
  f = Twice(same);
  REQUIRE(f);
  const Twice copy = f;  // refers to the callable, not to f
  f = {};
  CHECK_FALSE(f);
  CHECK(copy(9) == 9);
}
