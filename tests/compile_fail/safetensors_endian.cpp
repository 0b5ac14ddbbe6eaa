// expect: lockstep::SafetensorsFile: the format is little-endian and this processor is not;
#include <bit>
// A processor of the other kind, as far as the header can see.
#define little big
#include "lockstep/files/safetensors.hpp"
