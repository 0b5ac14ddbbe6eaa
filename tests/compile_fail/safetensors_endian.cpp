// expect: lockstep::SafetensorsFile: the format is little-endian and this processor is not;
#include <bit>
// Makes the header see a big-endian processor.
#define little big
#include "lockstep/files/safetensors.hpp"
