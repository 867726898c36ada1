BEGIN TRANSACTION;
CREATE TABLE curves (
    run TEXT NOT NULL REFERENCES runs (key),
    t INTEGER NOT NULL,
    regret REAL NOT NULL,
    gap_regret REAL,
    PRIMARY KEY (run, t)
) STRICT, WITHOUT ROWID;
INSERT INTO "curves" VALUES('5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc',1,-3.42698029267796133723e-02,7.28474765981292904371e-02);
INSERT INTO "curves" VALUES('5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc',2,-6.85396058535592267446e-02,8.52556704814642074552e-02);
INSERT INTO "curves" VALUES('5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc',3,-1.02809408780339062161e-01,8.52556704814642074552e-02);
INSERT INTO "curves" VALUES('5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc',4,-1.37079211707118453489e-01,8.52556704814642074552e-02);
INSERT INTO "curves" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48',1,-3.42698029267796133723e-02,1.24081938833349170181e-02);
INSERT INTO "curves" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48',2,-6.85396058535592267446e-02,2.48163877666698340362e-02);
INSERT INTO "curves" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48',3,-1.02809408780339062161e-01,2.48163877666698340362e-02);
INSERT INTO "curves" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48',4,-1.37079211707118453489e-01,3.72245816500047510544e-02);
INSERT INTO "curves" VALUES('a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4',1,-3.42698029267796133723e-02,0.0);
INSERT INTO "curves" VALUES('a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4',2,-6.85396058535592267446e-02,0.0);
INSERT INTO "curves" VALUES('a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4',3,-1.02809408780339062161e-01,0.0);
INSERT INTO "curves" VALUES('a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4',4,-1.37079211707118453489e-01,0.0);
INSERT INTO "curves" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee',1,-3.42698029267796133723e-02,NULL);
INSERT INTO "curves" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee',2,-6.85396058535592267446e-02,NULL);
INSERT INTO "curves" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee',3,-1.02809408780339062161e-01,NULL);
INSERT INTO "curves" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee',4,-1.37079211707118453489e-01,NULL);
CREATE TABLE members (
    spec TEXT NOT NULL REFERENCES specs (hash),
    position INTEGER NOT NULL,
    key TEXT NOT NULL,
    problem TEXT NOT NULL,
    model TEXT NOT NULL REFERENCES models (hash),
    label TEXT NOT NULL,
    seed INTEGER NOT NULL,
    PRIMARY KEY (spec, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "members" VALUES('1d4866696c30398b8d0beb69c9f6cb3b2915e897b8a1b1b08a518229a700b7ce',0,'9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','circle:2','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','PSRL',0);
INSERT INTO "members" VALUES('1d4866696c30398b8d0beb69c9f6cb3b2915e897b8a1b1b08a518229a700b7ce',1,'a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4','circle:2','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','oracle',0);
INSERT INTO "members" VALUES('1d4866696c30398b8d0beb69c9f6cb3b2915e897b8a1b1b08a518229a700b7ce',2,'5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc','circle:2','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','random',0);
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('format','fmdp-runs');
INSERT INTO "meta" VALUES('made_by','fmdp 0.1.0');
INSERT INTO "meta" VALUES('schema_version','1');
CREATE TABLE models (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    document BLOB NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "models" VALUES('37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2',X'789CC554D16EDB300C7CEF570479CE0A922225B1BF52148591789DB1C62E1CB70556F4DF7752DAACF1DA2E7B18161849648ABCE3E9A8A7B3C562F97518B7CDB4BCC0BFEDE6EECB76D8B4B7CB55893CB4E3AE1B7A84B8AEFB66DB967DEB6E5CDFB617B2DFB59B9AA9DDE1FD25568BC5D361DBB6597FEBFAF69A962BECEA7E949782BF0FCDEDFD3E61B9191EFB127D1CC6EF5D7FB3BC7A5E7D5084FFA6086A5C556ECD7A4203EF911B5BF01EA73755C371D5CABAA2F643DFBE2DDAF5DDD435B7D7B5F1B297570BDE876EC6E1FEAEE6EFD7D3D8F4BB6EC6A17EBF0A3713EA105B0F77B5F6B18A476ABCB67075C81A87C75F38E57349E70472E774D853DF99042757CD66D99CC19FCE35457232635556CA3ECB482A41B2104B0A89BD6688A59838794E122573384E790F3891C5A8492C4407AE9432E21A8249D2188872CEC7193953B6C86E8929855C12989D356452C92E08A53FE312E0086463222547DBA58E03CFD155103727D6598A7BCE1AC91284517E492162B6E02A5010DA9D801C38A828A7CCE602CA5AEBC41C2D5916CE4AC9E61DC4420BAD412C0FACFCC216F42101D422A45FBD64EC7F5FE7E6436FF1BFF096270D066378CA412166E1496251610C128E8643D613448A2165F70491F1D85EEA108589A097E251B599BB58C4A840C303419DAAAC3925F5820DAF44E3134E279B38E33C7134505BABBFC03951C6C9E364A0F68C7F065828C839C097A91AD2C863C1E5085F9E3206EEE0E88086014D2AAA10A11902329C8A1199DB51151A614E8009B75A1D1D37834818A89005BE3EC58EE221C2519A430A31F9DED58962C8B03347894166CE3ADC7B63FBD88C9B772EB2D73BF5E502FED33DF6C6534D7F53A3BF91C5A5DBED4AE86989929B527DD34EEDB8C5E5BB9BBAF5F2F9B073DB36FDB1334BB5C302553F9D9439F94F0785FF37F9721867CF673F01D531B6DF');
CREATE TABLE recordings (
    run TEXT NOT NULL REFERENCES runs (key),
    array TEXT NOT NULL,
    dtype TEXT NOT NULL,
    shape TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, array)
) STRICT, WITHOUT ROWID;
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','actions','|u1','[4, 1]',X'789C63606064000000060002');
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','rewards','<f8','[4, 2]',X'789C636000810FF60C64D2001A670979');
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','states','|u1','[5, 2]',X'789C63648401000041000B');
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','times','<i8','[5]',X'789C636080004628CD04A599A1340B94060000C8000B');
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','uncertainty','<f8','[5, 2]',X'789C636000810FF60C38E83F2EA6C6BC16EF71D23322156757DC7F07A7010151198B');
INSERT INTO "recordings" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','visited','<i8','[5, 2]',X'789C636040058C04682602340001C0000D');
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL REFERENCES models (hash),
    problem TEXT NOT NULL,
    learner TEXT NOT NULL,
    parameters TEXT NOT NULL,
    planner TEXT,
    planner_settings TEXT NOT NULL,
    seed INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    fmdp_version TEXT NOT NULL,
    results_version INTEGER NOT NULL,
    machine TEXT NOT NULL,
    finished TEXT NOT NULL,
    seconds REAL NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    error TEXT CHECK ((error IS NULL) = (status = 'done')),
    regret REAL CHECK ((regret IS NULL) = (status = 'failed')),
    gap_regret REAL,
    gain REAL,
    gain_kind TEXT CHECK (gain_kind IN ('exact', 'upper_bound')),
    episodes INTEGER,
    planner_calls INTEGER,
    unconverged_plans INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "runs" VALUES('5ef34ad785b58b14cfb6d42c0bd8f4bef19d6b3351848225ed69fdce5a071fcc','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2','random','{}',NULL,'{}',0,4,'0.1.0',2,'a machine','2026-11-16T04:05:10.491+00:00',3.91063000279245898127e-04,'done',NULL,-1.37079211707118453489e-01,8.52556704814642074552e-02,1.96573019707322038662e+00,'exact',0,0,0);
INSERT INTO "runs" VALUES('9d7f3024a57c9c0a3e8fe0406d55781753689c9ef5acbb21910801103afdcf48','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2','psrl','{"c":0.75,"episodes":"arithmetic","length":null,"prior":0.01}','exact','{"criterion":"average","discount":null,"max_iterations":200,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":0.002}',0,4,'0.1.0',2,'a machine','2026-11-16T04:05:10.481+00:00',3.2208493999860365875e-02,'done',NULL,-1.37079211707118453489e-01,3.72245816500047510544e-02,1.96573019707322038662e+00,'exact',4,4,0);
INSERT INTO "runs" VALUES('a68087b2187a3283b7d155571cea7ab80f18bcb82f6ed777978b587532eeaaf4','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2','oracle','{}','exact','{"criterion":"average","discount":null,"max_iterations":null,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":null}',0,4,'0.1.0',2,'a machine','2026-11-16T04:05:10.489+00:00',2.67257099949347320944e-03,'done',NULL,-1.37079211707118453489e-01,0.0,1.96573019707322038662e+00,'exact',1,1,0);
INSERT INTO "runs" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2','psrl','{"c":0.75,"episodes":"arithmetic","length":null,"prior":0.01}','exact','{"criterion":"average","discount":null,"max_iterations":200,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":0.002}',2,4,'0.1.0',2,'a machine','2026-11-16T04:05:10.481+00:00',3.2208493999860365875e-02,'done',NULL,3.00000000000000044408e-01,NULL,1.96573019707322038662e+00,'upper_bound',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb','circle:2','psrl','{"c":0.75,"episodes":"arithmetic","length":null,"prior":0.01}','exact','{"criterion":"average","discount":null,"max_iterations":200,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":0.002}',1,4,'0.1.0',2,'a machine','2026-11-16T04:05:10.481+00:00',3.2208493999860365875e-02,'failed','InvalidModel: no',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE specs (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    resolved TEXT NOT NULL,
    fmdp_version TEXT NOT NULL,
    added TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "specs" VALUES('1d4866696c30398b8d0beb69c9f6cb3b2915e897b8a1b1b08a518229a700b7ce','old','Made with schema version 1','name = "old"
title = "Made with schema version 1"
steps = 4
seeds = 1
problems = ["circle:2"]
[[learners]]
name = "psrl"
label = "PSRL"
[[learners]]
name = "oracle"
[[learners]]
name = "random"
','{"cells":[{"label":"PSRL","learner":"psrl","model":"37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb","parameters":{"c":0.75,"episodes":"arithmetic","length":null,"prior":0.01},"planner":"exact","planner_settings":{"criterion":"average","discount":null,"max_iterations":200,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":0.002},"problem":"circle:2","steps":4},{"label":"oracle","learner":"oracle","model":"37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb","parameters":{},"planner":"exact","planner_settings":{"criterion":"average","discount":null,"max_iterations":null,"max_seconds":null,"memory_limit":null,"targets":"nested","threads":null,"tie_seed":0,"ties":"random","tolerance":null},"problem":"circle:2","steps":4},{"label":"random","learner":"random","model":"37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb","parameters":{},"planner":null,"planner_settings":{},"problem":"circle:2","steps":4}],"name":"old","problems":[{"id":"circle:2","model":"37e65ee945f69311f4563ca006040588cf913c6ca566f0971664d1497c7fb3cb"}],"seeds":[0],"steps":4,"title":"Made with schema version 1"}','0.1.0','2026-11-16T04:05:09.954+00:00');
CREATE INDEX members_key ON members (key);
CREATE TRIGGER runs_done_stay BEFORE UPDATE ON runs WHEN OLD.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER runs_done_remain BEFORE DELETE ON runs WHEN OLD.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never removed'); END;
COMMIT;
