# cmake -DSOURCE=DIR -DWORK=DIR -P vcpkg_port.cmake: runs the overlay port without vcpkg. Its
# functions are played here by what their documentation says they do.
cmake_minimum_required(VERSION 3.22...3.25)
set(CURRENT_PORT_DIR "${SOURCE}/packaging/vcpkg/ports/lockstep")
set(CURRENT_PACKAGES_DIR "${WORK}/package")
set(FEATURES core cpu)
set(PORT lockstep)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(code)
    message(FATAL_ERROR "${ARGV}: ${code}\n${output}")
  endif()
endfunction()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCE_PATH)
    message(FATAL_ERROR "vcpkg_cmake_configure: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${WORK}/tree" -G Ninja
      "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS})
endfunction()
function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --install "${WORK}/tree")
endfunction()
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  file(COPY "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/"
       DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}")
  # vcpkg makes the prefix of the targets relative to the new place.
  file(GLOB targets "${CURRENT_PACKAGES_DIR}/share/${PORT}/*-targets.cmake")
  foreach(file IN LISTS targets)
    file(READ "${file}" text)
    string(REGEX REPLACE
           "get_filename_component\\(_IMPORT_PREFIX \"\\\${CMAKE_CURRENT_LIST_FILE}\" PATH\\)(\nget_filename_component\\(_IMPORT_PREFIX \"\\\${_IMPORT_PREFIX}\" PATH\\))*"
           "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_DIR}/../..\" ABSOLUTE)"
           text "${text}")
    file(WRITE "${file}" "${text}")
  endforeach()
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(COPY ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
endfunction()

file(READ "${CURRENT_PORT_DIR}/vcpkg.json" manifest)
string(JSON name GET "${manifest}" name)
string(JSON version GET "${manifest}" version)
file(READ "${SOURCE}/include/lockstep/core/version.hpp" header)
string(REPLACE "." ";" numbers "${version}")
list(POP_FRONT numbers major minor patch)
if(NOT name STREQUAL PORT OR NOT header MATCHES
   "_MAJOR ${major}\n#define LOCKSTEP_VERSION_MINOR ${minor}\n#define LOCKSTEP_VERSION_PATCH ${patch}\n")
  message(FATAL_ERROR "vcpkg.json is of ${name} ${version}")
endif()
include("${CURRENT_PORT_DIR}/portfile.cmake")
foreach(there IN ITEMS lockstep-config.cmake lockstep-core-targets.cmake
                       lockstep-cpu-targets.cmake LICENSE)
  if(NOT EXISTS "${CURRENT_PACKAGES_DIR}/share/lockstep/${there}")
    message(FATAL_ERROR "the port installs no ${there}")
  endif()
endforeach()
if(EXISTS "${CURRENT_PACKAGES_DIR}/share/lockstep/lockstep-cluster-targets.cmake")
  message(FATAL_ERROR "the port installs a component that is no feature asked for")
endif()
# A user's program finds it.
run("${CMAKE_COMMAND}" -S "${SOURCE}/packaging/conan/test_package" -B "${WORK}/user" -G Ninja
    "-Dlockstep_DIR=${CURRENT_PACKAGES_DIR}/share/lockstep")
run("${CMAKE_COMMAND}" --build "${WORK}/user")
run("${WORK}/user/program")
