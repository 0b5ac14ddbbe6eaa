#include "lockstep/core/add_item.hpp"

#include <catch2/catch_test_macros.hpp>

TEST_CASE("add_item puts the separator between items only") {
  std::string list;
  lockstep::add_item(list, ", ", "loss");
  CHECK(list == "loss");
  lockstep::add_item(list, ", ", "accuracy");
  CHECK(list == "loss, accuracy");
}
