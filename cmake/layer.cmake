# What most sources include takes longer to read than most sources to compile: it is read once, for the layers by
# tandem_base and for the tests by tandem_test_headers. A source still includes what it uses: the presets dev, asan and
# tsan go without.
set(TANDEM_HEADERS <fmt/format.h> <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
    <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility>
    <vector>)
if(TANDEM_TESTS)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cpp CONTENT "")
  foreach(kind test numeric_test)
    add_library(tandem_${kind}_headers OBJECT ${PROJECT_BINARY_DIR}/test_headers.cpp)
    target_link_libraries(tandem_${kind}_headers PRIVATE fmt::fmt GTest::gtest)
    target_precompile_headers(tandem_${kind}_headers PRIVATE <gtest/gtest.h> ${TANDEM_HEADERS})
  endforeach()
  target_compile_options(tandem_test_headers PRIVATE $<$<CONFIG:Release>:-O0>)
endif()

# tandem_layer(NAME SOURCES a.cpp ... [ALONE b.cpp ...] [DEPENDS targets ...] [TESTS a_test.cpp ...] [TEST_DEPENDS targets ...]
#              [NUMERIC_TESTS] [OWN_FLAGS])
# declares one layer of docs/architecture.md as the static library tandem_NAME (alias tandem::NAME), and its
# unit tests, which sit beside the sources, as one binary whose cases carry the label "unit". Tests are compiled without
# optimisation, which would take longer than running them, unless they have long loops of their own: NUMERIC_TESTS.
# OWN_FLAGS: the layer is compiled with other options than the rest, and reads the headers itself; with those of another
# target, GCC would take that one's optimisation level for every function after a target pragma, and say nothing.
#
# TANDEM_UNITY puts up to ten sources of a layer into one compilation: most of the time goes to headers and templates that
# they share. So a name within `namespace {` stands once in a layer. Sources that all have tables of the same names are
# compiled ALONE, as are those with flags of their own: kernels and commands, of which each has its own `run`.
function(tandem_layer name)
  cmake_parse_arguments(ARG "NUMERIC_TESTS;OWN_FLAGS" "" "SOURCES;ALONE;DEPENDS;TESTS;TEST_DEPENDS" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  add_library(tandem::${name} ALIAS tandem_${name})
  target_include_directories(tandem_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(tandem_${name} PUBLIC ${ARG_DEPENDS})
  set_target_properties(tandem_${name} PROPERTIES EXPORT_NAME ${name})
  if(TANDEM_UNITY AND NOT ARG_OWN_FLAGS AND NOT name MATCHES "^kernels_")
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_target_properties(tandem_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # A class that holds one of an anonymous namespace is told apart from a header's only by the name of the main file.
    target_compile_options(tandem_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  if(name STREQUAL base OR ARG_OWN_FLAGS)
    target_precompile_headers(tandem_${name} PRIVATE ${TANDEM_HEADERS})
  else()
    target_precompile_headers(tandem_${name} REUSE_FROM tandem_base)
  endif()
  if(TANDEM_TESTS AND ARG_TESTS)
    add_executable(tandem_${name}_test ${ARG_TESTS})
    target_link_libraries(tandem_${name}_test PRIVATE tandem_${name} ${ARG_TEST_DEPENDS} GTest::gtest_main)
    if(ARG_NUMERIC_TESTS)
      target_precompile_headers(tandem_${name}_test REUSE_FROM tandem_numeric_test_headers)
    else()
      target_compile_options(tandem_${name}_test PRIVATE $<$<CONFIG:Release>:-O0>)
      target_precompile_headers(tandem_${name}_test REUSE_FROM tandem_test_headers)
    endif()
    gtest_discover_tests(tandem_${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)
  endif()
endfunction()
