// expect: lockstep::Cpu: max pooling packs its winners for little-endian machines;
#include <bit>
// A processor of the other kind, as far as the header can see.
#define little big
#include "lockstep/devices/cpu/max_pooling2d.hpp"
