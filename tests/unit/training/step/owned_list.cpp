#include "lockstep/training/step/owned_list.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace ls = lockstep;

namespace {

struct Named {
  Named(std::string n, std::string& log) : name(std::move(n)), destroyed(log) {}
  ~Named() { destroyed += name; }
  std::string name;
  std::string& destroyed;
};

static_assert(!std::is_copy_constructible_v<ls::detail::OwnedList<int>>);

}  // namespace

TEST_CASE("a list owns an object in each place, and destroys them in order") {
  std::string log;
  ls::detail::OwnedList<Named> list;
  list.resize(3);
  CHECK(list.size() == 3);
  CHECK(list[1] == nullptr);
  for (std::size_t i = 0; i < 3; ++i) list.put(i, new Named(std::string(1, "abc"[i]), log));
  CHECK(list[2]->name == "c");
  list.put(0, new Named("d", log));
  CHECK(log == "a");
  ls::detail::OwnedList<Named> moved = std::move(list);
  CHECK(log == "a");
  CHECK(moved[0]->name == "d");
  moved.clear();
  CHECK(log == "adbc");
  CHECK(moved.size() == 0);
}
