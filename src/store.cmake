# Files and jobs. PostgreSQL is one folder of two: store/postgres where libpqxx is there, else store/postgres_absent, which says so.
if(PQXX_FOUND)
  sluice_layer(store DEPS base LIBS PkgConfig::SQLITE PkgConfig::PQXX EXCLUDE postgres_absent)
  # libpqxx 7.9 renamed the one call that 6 and 7 both have.
  set_source_files_properties(store/postgres/postgres_store.cpp PROPERTIES COMPILE_OPTIONS -Wno-deprecated-declarations)
else()
  sluice_layer(store DEPS base LIBS PkgConfig::SQLITE EXCLUDE postgres)
endif()
