/** KDF parameters that are refused while they are read, in password hashes and elsewhere. */

/** 16 bytes in the alphabet of PHC strings. */
export const SALT = 'c2FsdHNhbHRzYWx0c2FsdA';

/** To compute these would take gigabytes or minutes, or they are not our spelling. */
export const HOSTILE: Readonly<Record<string, string>> = {
  'half a gibibyte': `$scrypt$ln=19,r=8,p=1$${SALT}`,
  'one gibibyte': `$scrypt$ln=20,r=8,p=1$${SALT}`,
  'more memory than there is': `$scrypt$ln=40,r=8,p=1$${SALT}`,
  'the greatest ln': `$scrypt$ln=99,r=1,p=1$${SALT}`,
  'the greatest r': `$scrypt$ln=15,r=99,p=1$${SALT}`,
  'the greatest p': `$scrypt$ln=15,r=8,p=99$${SALT}`,
  'the greatest of all': `$scrypt$ln=99,r=99,p=99$${SALT}`,
  'an ln of three digits': `$scrypt$ln=100,r=8,p=1$${SALT}`,
  'a p of ten digits': `$scrypt$ln=4,r=8,p=1073741823$${SALT}`,
  'no work at all': `$scrypt$ln=0,r=8,p=1$${SALT}`,
  'r = 0': `$scrypt$ln=4,r=0,p=1$${SALT}`,
  'p = 0': `$scrypt$ln=4,r=8,p=0$${SALT}`,
  'an N that scrypt does not have': `$scrypt$ln=16,r=1,p=1$${SALT}`,
  'a negative ln': `$scrypt$ln=-4,r=8,p=1$${SALT}`,
  'a leading zero': `$scrypt$ln=04,r=8,p=1$${SALT}`,
  hexadecimal: `$scrypt$ln=0x4,r=8,p=1$${SALT}`,
  'an exponent': `$scrypt$ln=4e0,r=8,p=1$${SALT}`,
  'digits of another script': `$scrypt$ln=４,r=8,p=1$${SALT}`,
  'another order': `$scrypt$r=8,ln=4,p=1$${SALT}`,
  'a missing parameter': `$scrypt$ln=4,r=8$${SALT}`,
  'a parameter too many': `$scrypt$ln=4,r=8,p=1,v=1$${SALT}`,
  'a parameter twice': `$scrypt$ln=4,r=8,p=1,p=1$${SALT}`,
  'a space': `$scrypt$ln=4, r=8,p=1$${SALT}`,
  'a newline before': `\n$scrypt$ln=4,r=8,p=1$${SALT}`,
  'another function': `$argon2id$v=19$m=65536,t=3,p=4$${SALT}`,
  'another function with our parameters': `$bcrypt$ln=4,r=8,p=1$${SALT}`,
  capitals: `$SCRYPT$ln=4,r=8,p=1$${SALT}`,
  'an empty salt': '$scrypt$ln=4,r=8,p=1$',
  'a short salt': `$scrypt$ln=4,r=8,p=1$${SALT.slice(1)}`,
  'a long salt': `$scrypt$ln=4,r=8,p=1$${SALT}A`,
  'a salt with padding': `$scrypt$ln=4,r=8,p=1$${SALT}==`,
  'bits of the salt that no byte uses': `$scrypt$ln=4,r=8,p=1$${SALT.slice(0, -1)}B`,
};
