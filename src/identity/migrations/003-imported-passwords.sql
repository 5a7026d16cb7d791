-- Hashes of other programs, until the first login of each user replaces them.
create index users_imported on identity.users (id) where password_hash like 'imported$%';
