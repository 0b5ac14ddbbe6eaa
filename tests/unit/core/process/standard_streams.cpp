#include "lockstep/core/process/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "support/child.hpp"

TEST_CASE("closed standard streams are reserved, open ones are unchanged") {
  CHECK(testing::in_child([] {
          int ends[2];
          if (::pipe(ends) != 0) return 1;
          ::dup2(ends[1], STDOUT_FILENO);
          ::close(STDIN_FILENO);
          ::close(STDERR_FILENO);
          lockstep::detail::reserve_standard_streams();
          char byte = 'x';
          if (::write(STDERR_FILENO, &byte, 1) != 1 || ::read(STDIN_FILENO, &byte, 1) != 0)
            return 2;
          if (::write(STDOUT_FILENO, "y", 1) != 1 || ::read(ends[0], &byte, 1) != 1) return 3;
          const int next = ::open("/dev/null", O_RDONLY);
          return byte == 'y' && next > STDERR_FILENO ? 0 : 4;
        }) == 0);
}
