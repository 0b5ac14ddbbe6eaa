#include "lockstep/core/version.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#if LOCKSTEP_VERSION_NUMBER < 100 || LOCKSTEP_VERSION_MAJOR > 99
#error the preprocessor cannot compare versions
#endif

TEST_CASE("the version text has all three numbers") {
  CHECK(std::string(LOCKSTEP_VERSION) == std::to_string(LOCKSTEP_VERSION_MAJOR) + "." +
                                             std::to_string(LOCKSTEP_VERSION_MINOR) + "." +
                                             std::to_string(LOCKSTEP_VERSION_PATCH));
}
