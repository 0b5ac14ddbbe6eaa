# An overlay port of the tree that it lies in: vcpkg install lockstep --overlay-ports=packaging/vcpkg/ports
set(compiled OFF)
if("compiled" IN_LIST FEATURES)
  set(compiled ON)
else()
  set(VCPKG_BUILD_TYPE release) # headers only
endif()
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

set(components core)
foreach(feature IN ITEMS cpu cluster tensorboard onnx testing mpi cuda)
  if(feature IN_LIST FEATURES)
    list(APPEND components ${feature})
  endif()
endforeach()
list(JOIN components "\\;" components)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    "-DLOCKSTEP_COMPONENTS=${components}"
    "-DLOCKSTEP_COMPILED=${compiled}"
    -DLOCKSTEP_BUILD_TESTS=OFF
    -DLOCKSTEP_BUILD_EXAMPLES=OFF
    -DLOCKSTEP_BUILD_BENCHMARKS=OFF
    -DLOCKSTEP_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/lockstep)
vcpkg_fixup_pkgconfig()
if(compiled)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
endif()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
