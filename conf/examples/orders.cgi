#!/usr/bin/perl
# A backend that settles by itself (IdempotencyEffect transactional; transactional.conf): the order, the message about
# it and the operation's outcome are one transaction. Whatever dies, and whenever: all three are there, or none.
#
# The database is the registry's; the login has the role idempotency_backend, see orders.sql. SHOP_DSN names it.
use strict;
use warnings;
use DBI;
use JSON::PP;

sub answer {
    my ($status, $body, %headers) = @_;
    print "Status: $status\nContent-Type: application/json\n", map({ "$_: $headers{$_}\n" } sort keys %headers), "\n",
        JSON::PP->new->utf8->canonical->encode($body);
    exit 0;
}

# suEXEC passes only the request headers on
my ($operation, $generation) = map { $ENV{$_} // $ENV{"HTTP_$_"} } qw(IDEMPOTENCY_OPERATION_ID IDEMPOTENCY_GENERATION);
answer(500, { error => 'this address is not protected' }) if !defined $operation;   # never sell twice for a missing line
my $order = eval { decode_json(do { local $/; <STDIN> }) };
answer(422, { error => 'item and quantity are wanted' })                            # nothing was begun; final, and replayed
    if ref $order ne 'HASH' || ref($order->{item} // []) || ($order->{quantity} // '') !~ /\A[0-9]{1,9}\z/;

my ($body, $location);
my $db = DBI->connect("dbi:Pg:$ENV{SHOP_DSN}", undef, undef, { RaiseError => 1, PrintError => 0, AutoCommit => 0 });
eval {
    my ($id) = $db->selectrow_array('INSERT INTO orders (operation, customer, item, quantity) VALUES (?, ?, ?, ?) RETURNING id',
        undef, $operation, $ENV{REMOTE_USER}, @$order{qw(item quantity)});
    $body = { order => $id, item => $order->{item}, quantity => 0 + $order->{quantity} };
    $location = "/orders/$id";
    my $json = JSON::PP->new->canonical->encode($body);

    # Whoever sends the messages finds it exactly if this transaction commits.
    $db->do("SELECT idempotency_outbox_put(?, ?, 'order.made', convert_to(?, 'UTF8'))", undef, $operation, $generation, $json);

    # With the response that a retry is to get, also where this one never reaches its client.
    $db->do("SELECT idempotency_settle(?, ?, 'succeeded', 201, ?, convert_to(?, 'UTF8'))", undef, $operation, $generation,
        encode_json({ 'Content-Type' => 'application/json', Location => $location }), $json);
    $db->commit;
    1;
} or do {
    # IDEM1: somebody has taken this operation over. That, and every other error, undoes all of it; the next retry runs.
    warn 'order: SQLSTATE ' . $db->state . "\n"; # the message may have the customer's data in it
    eval { $db->rollback };
    answer(500, { error => 'not ordered' });
};
answer(201, $body, Location => $location);
