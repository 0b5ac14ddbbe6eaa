#include "support/units.hpp"

namespace support {

std::map<std::string, UnitEntry>& units() {
  static std::map<std::string, UnitEntry> all;
  return all;
}

void add_unit(const char* options, const UnitEntry& entry) { units()[options] = entry; }

}  // namespace support
