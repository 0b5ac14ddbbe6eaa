// expect: lockstep::Cpu: max pooling packs its winners for little-endian machines;
#include <bit>
// Makes the header see a big-endian processor.
#define little big
#include "lockstep/devices/cpu/max_pooling2d.hpp"
