// A user's program that needs each library of the component core, and little time to compile.
#include <cstddef>
#include <cstdio>
#include <functional>
#include <vector>

#include <lockstep/core/error.hpp>
#include <lockstep/core/numbers/sha256.hpp>
#include <lockstep/core/version.hpp>
#include <lockstep/data/sources/idx.hpp>
#include <lockstep/files/safetensors.hpp>

namespace ls = lockstep;

int main() {
  const std::vector<std::byte> none;
  std::printf("lockstep %s: %s\n", LOCKSTEP_VERSION, ls::sha256_hex(none).c_str());
  int refused = 0;
  const std::vector<std::function<void()>> reads{[] { ls::SafetensorsFile::read("absent"); },
                                                 [] { ls::read_idx("absent.gz", 1); }};
  for (const auto& read : reads) {
    try {
      read();
    } catch (const ls::Error& error) {
      std::printf("%s\n", error.what());
      ++refused;
    }
  }
  return refused == 2 ? 0 : 1;
}
